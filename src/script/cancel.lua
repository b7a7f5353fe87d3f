-- cancel: give a token up for good, whether its request has arrived or not: it leaves the queue,
-- and what it holds goes to the next.
-- KEYS 1 lock  2 fencing counter  3 queue  4 tombstones  5 own
-- ARGV 1 token  2 how long to remember it, ms; 0: no copy of its request is under way
--      3 its member of the queue or ''  4 owner id or ''
-- Returns 1 it held the lock  0 it did not
-- The tombstone stays, so that a copy of the request that is still under way takes nothing.
local lock, counter, queue, own = KEYS[1], KEYS[2], KEYS[3], KEYS[5]
--#include part/number.lua
--#include part/pass.lua
if ARGV[2] ~= '0' then
  local t = redis.call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000)
  local added = redis.pcall('ZADD', KEYS[4], now + tonumber(ARGV[2]), ARGV[1])
  if type(added) == 'number' then
    redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', now)
    redis.call('PEXPIREAT', KEYS[4], redis.call('ZRANGE', KEYS[4], -1, -1, 'WITHSCORES')[2])
  end
end
if ARGV[3] ~= '' then
  local youngest = redis.pcall('ZREVRANK', queue, ARGV[3])
  redis.pcall('ZREM', queue, ARGV[3])
  if youngest == 0 then
    local last = redis.call('ZRANGE', queue, -1, -1)[1]
    if last then
      local token = string.match(last, '^([^:]+)')
      redis.call('PUBLISH', channels .. string.sub(token, 1, 32), 'watch ' .. token)
    end
  end
end
local mine = ARGV[1] .. ':'
local function begins(key)
  return redis.pcall('GETRANGE', key, 0, #mine - 1) == mine
end
if ARGV[4] == '' then
  if not begins(lock) then return 0 end
else
  if not begins(own) then return 0 end
  redis.call('DEL', own)
  if redis.pcall('GETRANGE', lock, 0, #ARGV[4]) ~= ARGV[4] then return 1 end
end
pass()
return 1
