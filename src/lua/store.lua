-- SPDX-License-Identifier: MIT
-- store: cache a value beside a lock, for the grant that holds it.
-- KEYS 1 lock  2 own  3 value
-- ARGV 1 owner id of the grant  2 its number  3 ms it is fresh  4 ms it is kept  5 the value
-- Returns 1 stored  0 the lock is not that grant's (any more): nothing written
--         {-3} another kind of data is there: nothing written
-- Who lost its lock cannot overwrite what its successor computed. Sent again it gives the same
-- answer: the number stays beside the value.
local held, own = redis.pcall('GET', KEYS[1]), redis.pcall('GET', KEYS[2])
local kind = redis.call('TYPE', KEYS[3]).ok
if kind ~= 'none' and kind ~= 'hash' then return {-3} end
local ours = false
if type(held) == 'string' then
  local plain = ARGV[1] .. ':' .. ARGV[2] .. ':'
  ours = string.sub(held, 1, #plain) == plain
  if not ours and type(own) == 'string' then
    ours = string.sub(held, 1, #ARGV[1]) == ARGV[1] and string.match(own, ':(%d+)$') == ARGV[2]
  end
end
if not ours then return redis.call('HGET', KEYS[3], 'fence') == ARGV[2] and 1 or 0 end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('HSET', KEYS[3], 'v', ARGV[5], 'made', string.format('%.0f', now),
  'fresh', string.format('%.0f', now + ARGV[3]), 'fence', ARGV[2])
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return 1
