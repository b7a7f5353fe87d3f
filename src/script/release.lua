-- release: give a lock back, if its value still is exactly ours.
-- KEYS 1 lock [2 own]
-- ARGV 1 value [2 value of own]
-- Returns 1 released  0 not ours: nothing was changed
-- One byte more than the value is read: a longer one cannot pass for ours, nor cost much.
local value = redis.pcall('GETRANGE', KEYS[1], 0, #ARGV[1])
if value ~= ARGV[1] then
  if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE') then return value end
  return 0
end
if KEYS[2] then
  if redis.pcall('GETRANGE', KEYS[2], 0, #ARGV[2]) ~= ARGV[2] then return 0 end
  redis.call('DEL', KEYS[2])
end
redis.call('DEL', KEYS[1])
return 1
