-- SPDX-License-Identifier: MIT
-- hold_key: one key of a lock in a cluster while its slot is being moved: each key may be on
-- another server then, and no script that names several is run.
-- KEYS 1 the key
-- ARGV 1 'renew' (never shortens), 'check', 'free', or 'unmark': of the marks of absence, that of
--      the third
--      2 what it must be: 'value', exactly that; 'kind', beginning so; 'member', with that living
--      holder among others; 'any'
--      3 that  4 ttl ms  [5 the key of the marks of breaking, or ''  6 the holder's number
--      [7 the key beside a caller-chosen id, and 8 what it must be if it is seen here: a later
--      grant of the same id has another]]
-- Returns {server time in ms, 1 it is, and it was done  0 it is not: nothing was changed}
--         {server time in ms, 3, what is written for the holder}: it was broken, as far as can be
--         seen here: the marks may be on another server. Then nothing was changed either
local key, what, text, ttl = KEYS[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local broken = (ARGV[5] or '') ~= '' and redis.pcall('HGET', ARGV[5], 'break:' .. ARGV[6])
if type(broken) == 'string' then
  redis.pcall('HSET', ARGV[5], 'told:' .. ARGV[6], '1')
  return {now, 3, 'break ' .. string.sub(broken, 1, 500)}
end
local function is()
  if what == 'any' then return true end
  local found
  if what == 'member' then
    found = redis.pcall('ZSCORE', key, text)
  else
    found = redis.pcall('GETRANGE', key, 0, what == 'kind' and #text - 1 or #text)
  end
  if type(found) == 'table' and found.err then
    if not string.find(found.err, 'WRONGTYPE') then error(found) end
    return false
  end
  if what == 'member' then return found and tonumber(found) > now end
  return found == text
end
if not is() then return {now, 0} end
if ARGV[7] then
  local own = redis.pcall('GETRANGE', ARGV[7], 0, #ARGV[8])
  if type(own) == 'string' and own ~= '' and own ~= ARGV[8] then return {now, 0} end
end
if ARGV[1] == 'free' then
  redis.call('DEL', key)
elseif ARGV[1] == 'unmark' then
  redis.pcall('HDEL', key, text)
elseif ARGV[1] == 'renew' then
  if what == 'member' and tonumber(redis.call('ZSCORE', key, text)) < now + ttl then
    redis.call('ZADD', key, string.format('%.0f', now + ttl), text)
  end
  if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, ttl) end
end
return {now, 1}
