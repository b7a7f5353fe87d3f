-- SPDX-License-Identifier: MIT
-- proclaim: the leader makes its value known, or takes it away when it leads no more.
-- KEYS 1 lock  2 value  3 fencing counter  4 listeners
-- ARGV 1 'token:number:', with which the lock begins while this term lasts  2 term: that number
--      [3 which of the values of this term  4 value; without them: take away]
-- Returns 1 done, now or by a later one   0 another's term, or nobody's: nothing was changed
-- {-3} the value's key holds something else
-- A value is written only under its own lock, over an earlier one of the term, and taken away only
-- if it is of this term: so it never outlives its leader by more than the ttl, and a late copy of a
-- request brings nothing back and hits nobody else's.
local counter = KEYS[3]
--#include part/ring.lua
local stands = redis.pcall('GETRANGE', KEYS[2], 0, 63)
if type(stands) == 'table' then
  if string.find(stands.err, 'WRONGTYPE') then return {-3} end
  return stands
end
local term, nth = string.match(stands, '^(%d+):(%d+):')
if ARGV[4] then
  local lock = redis.pcall('GETRANGE', KEYS[1], 0, #ARGV[1] - 1)
  if type(lock) == 'table' and not string.find(lock.err, 'WRONGTYPE') then return lock end
  if lock ~= ARGV[1] then return 0 end
  if term == ARGV[2] and tonumber(nth) > tonumber(ARGV[3]) then return 1 end
  local left = redis.call('PTTL', KEYS[1])
  redis.call('SET', KEYS[2], ARGV[2] .. ':' .. ARGV[3] .. ':' .. ARGV[4],
    'PX', left > 0 and left or 1000)
elseif term == ARGV[2] then
  redis.call('DEL', KEYS[2])
end
ring(KEYS[4])
return 1
