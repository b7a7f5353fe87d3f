-- cancel: give a token up for good, whether its request has arrived or not.
-- KEYS 1 lock  2 tombstones  3 own
-- ARGV 1 token  2 how long to remember it, ms  3 owner id or ''
-- Returns 1 it held the lock, which is free now  0 it did not
-- The tombstone stays, so that a copy of the request that is still under way takes nothing.
local mine = ARGV[1] .. ':'
local function begins(key)
  local v = redis.pcall('GETRANGE', key, 0, #mine - 1)
  if type(v) == 'table' and not string.find(v.err, 'WRONGTYPE') then error(v) end
  return v == mine
end
local held = 0
if ARGV[3] == '' then
  if begins(KEYS[1]) then
    redis.call('DEL', KEYS[1])
    held = 1
  end
elseif begins(KEYS[3]) then
  if redis.pcall('GETRANGE', KEYS[1], 0, #ARGV[3]) == ARGV[3] then redis.call('DEL', KEYS[1]) end
  redis.call('DEL', KEYS[3])
  held = 1
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[2], string.format('%.0f', now + tonumber(ARGV[2])), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[2], math.max(redis.call('PTTL', KEYS[2]), tonumber(ARGV[2])))
return held
