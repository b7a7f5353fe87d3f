-- proclaim: the leader makes its value known, or takes it away when it leads no more.
-- KEYS 1 lock  2 value  3 fencing counter  4 listeners
-- ARGV 1 'token:number:', with which the lock begins while this term lasts  2 term: that number
--      [3 value; without it: take away]
-- Returns 1 done   0 another's term, or nobody's: nothing was changed   {-3} the value's key holds
-- something else
-- A value is written only under its own lock and taken away only if it is of this term, so it never
-- outlives its leader by more than the ttl, and a late copy of a request hits nobody else's.
local counter = KEYS[3]
--#include part/ring.lua
local function begins(key, text)
  local v = redis.pcall('GETRANGE', key, 0, #text - 1)
  if type(v) == 'table' then return nil, v end
  return v == text
end
local ours, bad = begins(KEYS[2], ARGV[2] .. ':')
if bad then
  if string.find(bad.err, 'WRONGTYPE') then return {-3} end
  return bad
end
if ARGV[3] then
  local leads, failed = begins(KEYS[1], ARGV[1])
  if failed and not string.find(failed.err, 'WRONGTYPE') then return failed end
  if not leads then return 0 end
  local left = redis.call('PTTL', KEYS[1])
  redis.call('SET', KEYS[2], ARGV[2] .. ':' .. ARGV[3], 'PX', left > 0 and left or 1000)
elseif ours then
  redis.call('DEL', KEYS[2])
end
ring(KEYS[4])
return 1
