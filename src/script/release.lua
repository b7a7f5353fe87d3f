-- release: give a lock back, if its value still is exactly ours.
-- KEYS 1 lock [2 own]
-- ARGV 1 value [2 value of own]
-- Returns 1 released  0 not ours: nothing was changed
local function holds(key, value)
  return redis.pcall('GETRANGE', key, 0, #value) == value
end
if not holds(KEYS[1], ARGV[1]) then return 0 end
if KEYS[2] and not holds(KEYS[2], ARGV[2]) then return 0 end
redis.call('DEL', unpack(KEYS))
return 1
