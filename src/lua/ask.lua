-- SPDX-License-Identifier: MIT
-- ask: those who hold a lock are asked to let go. Nothing of the lock changes.
-- KEYS 1 lock  2 fencing counter  3 queue  4 own
-- ARGV 1 number of the one who is asked; 0: all, a hundred at the most  2 by whom  3 what
-- Returns {what, how many were asked, how many of them have a session that is there}
-- what: 0 free  1 asked  2 held under another number  3 held under no number  -3 not a lock
-- The question is a companion of the lock, by its number; keep shows it to who renews under it. The
-- message is only a hint to do so now.
local lock, counter, queue, own = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
--#include part/shared.lua
--#include part/session.lua
local fence, breaks = ARGV[1], string.sub(queue, 1, -2) .. 'x'
--#include part/beside.lua
local value, left = redis.pcall('GETRANGE', lock, 0, 511), redis.call('PTTL', lock)
if type(value) == 'table' then
  return string.find(value.err, 'WRONGTYPE') and {-3, 0, 0} or value
end
if left == -2 then return {0, 0, 0} end
if string.find(value, '^latch%.%d') or string.find(value, '^barrier%.%d') then
  return {-3, 0, 0}
end
local asked, heard, known = 0, 0, false
local function ask(token, number, ms)
  known = known or number ~= nil
  if not number or (fence ~= '0' and number ~= fence) then return end
  make_room()
  redis.call('HSET', breaks, 'ask:' .. number,
    string.format('%.0f ', now()) .. ARGV[2] .. ' ' .. ARGV[3])
  redis.call('PEXPIRE', breaks, math.max(redis.call('PTTL', breaks), ms + 60000))
  tell(token, 'ask ' .. token)
  asked = asked + 1
  if alive(token) then heard = heard + 1 end
end
if sharing(value) then
  for _, token in ipairs(redis.call('ZRANGE', holders, 0, fence == '0' and 99 or -1)) do
    ask(token, string.match(redis.call('HGET', details, token) or '', '^(%d+):'), left)
  end
else
  local token, number = string.match(value, '^(%x+%.%d+):(%d+):%d+$')
  if not token then
    local record = redis.pcall('GETRANGE', own, 0, 127)
    token, number = string.match(type(record) == 'string' and record or '', '^([^:]+):(%d+)$')
  end
  ask(token, number, left)
end
return {asked > 0 and 1 or known and 2 or 3, asked, heard}
