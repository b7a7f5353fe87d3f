-- SPDX-License-Identifier: MIT
-- value: what is cached beside a lock; or forget it.
-- KEYS 1 value
-- ARGV 1 'get' or 'drop'  2 largest size that is wanted
-- Returns {1, bytes, ms since it was computed, ms for which it still is fresh}  {0} nothing there
--         {-3} something else is there, or it is larger
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then return {0} end
if kind ~= 'hash' then return {-3} end
if ARGV[1] == 'drop' then
  redis.call('DEL', KEYS[1])
  return {0}
end
if redis.call('HSTRLEN', KEYS[1], 'v') > tonumber(ARGV[2]) then return {-3} end
local v = redis.call('HGET', KEYS[1], 'v')
local made = tonumber(redis.call('HGET', KEYS[1], 'made') or '')
local fresh = tonumber(redis.call('HGET', KEYS[1], 'fresh') or '')
if not v or not made or not fresh then return {-3} end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
return {1, v, math.max(now - made, 0), fresh - now}
