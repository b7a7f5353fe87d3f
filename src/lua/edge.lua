-- SPDX-License-Identifier: MIT
-- edge: a holder of this lock waits for another lock, or does so no more.
-- KEYS 1 lock  2 queue  3 own
-- ARGV 1 the holder: its token, or '#' and its fencing number
--      2 the token under which it waits  3 the key of the lock that it waits for
--      4 for how long this is believed, ms; 0: it waits no more
--      5 for how long it has waited, ms  6 since when, server time in ms; '': not known yet
-- Returns {1, since when}  {0, 0} it does not hold this lock (any more): nothing is written
-- What is written decides nothing by itself: whoever follows it looks whether the holder holds, and
-- whether the waiter stands in the queue. It goes by itself.
local lock, queue, own = KEYS[1], KEYS[2], KEYS[3]
local base = string.sub(queue, 1, -2)
local waits, holders, details = base .. 'wf', base .. 'h', base .. 'd'
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function text(key, last)
  local found = redis.pcall('GETRANGE', key, 0, last)
  return type(found) == 'string' and found or ''
end
-- the holder's token; nil: it is none
local function holder()
  local value = text(lock, 511)
  local wanted = string.match(ARGV[1], '^#(%d+)$')
  if string.find(value, '^shared%.%d+%.%d+:%d+:0$') then
    local tokens = wanted and redis.pcall('ZRANGE', holders, 0, 999) or {ARGV[1]}
    for _, token in ipairs(tokens) do
      local ends = redis.pcall('ZSCORE', holders, token)
      local detail = wanted and redis.pcall('HGET', details, token)
      if type(ends) == 'string' and tonumber(ends) > now and (not wanted
        or type(detail) == 'string' and string.match(detail, '^%d+') == wanted) then
        return token
      end
    end
    return nil
  end
  if value == '' then return nil end
  local token, fence = string.match(value, '^(%x+%.%d+):(%d+):%d+$')
  if not token then token, fence = string.match(text(own, 127), '^(%x+%.%d+):(%d+)$') end
  if token and (token == ARGV[1] or fence == wanted) then return token end
end
local token = holder()
if not token then return {0, 0} end
local kind = redis.call('TYPE', waits).ok
if kind ~= 'hash' and kind ~= 'none' then return {0, 0} end
if ARGV[4] == '0' then
  local found = redis.call('HGET', waits, token)
  if found and string.match(found, '^%d+ %d+ (%S+) ') == ARGV[2] then
    redis.call('HDEL', waits, token)
  end
  return {1, 0}
end
if redis.call('HLEN', waits) > 2000 then redis.call('DEL', waits) end
local since = tonumber(ARGV[6]) or now - ARGV[5]
redis.call('HSET', waits, token,
  string.format('%.0f %.0f ', now + ARGV[4], since) .. ARGV[2] .. ' ' .. ARGV[3])
redis.call('PEXPIRE', waits, math.max(redis.call('PTTL', waits), tonumber(ARGV[4])))
return {1, since}
