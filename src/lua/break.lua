-- SPDX-License-Identifier: MIT
-- break: the holder with this number shall let go. Its lock stays as it is: it passes when the
-- holder has given it back, or when its lease has ended, which is not renewed any more.
-- KEYS 1 lock  2 fencing counter  3 queue  4 reign  5 absent marks  6 own  7 tombstones
-- ARGV 1 'mark', 'look' (again, without a message), or 'now': hand it on at once
--      2 number; 0: of a lock without one  3 by whom  4 why
--      5 the value of a lock without a number  6 how long to remember the token, ms
--      7 the token, if it is known, or ''
--      then for each absence that the caller has been seeing, as in look: the absence, and ms
-- Returns {what, ms left of its lease, number of who holds it or 0,
--          1 its session is there  0 it is not  -1 nobody may say, 1 it has asked and was told,
--          absences, token}
-- what: 0 free  1 held under this number, and marked  2 held under another number
--       3 held under no number  4 handed on at once  5 handed on: the holder was gone
--       -3 not a lock
-- The mark is a companion of the lock, for this number alone, and outlasts its lease. keep refuses
-- whoever has that number. The message is only a hint to ask.
local lock, counter, queue, own = KEYS[1], KEYS[2], KEYS[3], KEYS[6]
--#include part/number.lua
--#include part/pass.lua
--#include part/entomb.lua
local mode, fence, breaks = ARGV[1], ARGV[2], string.sub(queue, 1, -2) .. 'x'
--#include part/beside.lua
local value, left = redis.pcall('GETRANGE', lock, 0, 511), redis.call('PTTL', lock)
local told = type(redis.pcall('HGET', breaks, 'told:' .. fence)) == 'string' and 1 or 0
if type(value) == 'table' then
  return string.find(value.err, 'WRONGTYPE') and {-3, 0, 0, -1, 0, {}, ''} or value
end
if left == -2 then return {0, 0, 0, -1, told, {}, ''} end
if string.find(value, '^latch%.%d') or string.find(value, '^barrier%.%d') then
  return {-3, 0, 0, -1, 0, {}, ''}
end
-- who has it: token, number, grace, what a mark of absence is about
local s = sharing(value)
local token, n, grace, of
if s then
  token = number_of(ARGV[7]) == tonumber(fence) and ARGV[7] or nil
  for _, one in ipairs(token and {} or redis.call('ZRANGE', holders, 0, -1)) do
    local number = left_of(one)
      and string.match(redis.call('HGET', details, one) or '', '^(%d+):')
    if number == fence then token = one end
    n = n or number
  end
  if token then
    n, grace = string.match(redis.call('HGET', details, token) or '', '^(%d+):(%d+):')
    of, left = token, left_of(token) or 0
  end
else
  token, n, grace = string.match(value, '^(%x+%.%d+):(%d+):(%d+)$')
  of = value
  if not token then
    local record = redis.pcall('GETRANGE', own, 0, 127)
    token, n = string.match(type(record) == 'string' and record or '', '^([^:]+):(%d+)$')
    grace = '0'
  end
end
local function hand_on()
  if s then
    dismiss(s, token)
    dismiss_ended(s)
    pass(s)
  else
    redis.call('DEL', own)
    pass()
  end
end
if not n then
  if mode == 'now' and fence == '0' and ARGV[5] ~= ''
    and redis.call('GETRANGE', lock, 0, #ARGV[5]) == ARGV[5] then
    hand_on()
    return {4, left, 0, -1, 0, {}, ''}
  end
  return {3, left, 0, -1, told, {}, ''}
end
if n ~= fence or not token then return {2, left, tonumber(n), -1, told, {}, ''} end
make_room()
local fresh = not redis.call('HGET', breaks, 'break:' .. fence)
if fresh then
  redis.call('HSET', breaks, 'break:' .. fence,
    string.format('%.0f ', now()) .. ARGV[3] .. ' ' .. ARGV[4])
end
redis.call('PEXPIRE', breaks, math.max(redis.call('PTTL', breaks), left + 60000))
if mode ~= 'look' or fresh then tell(token, 'break ' .. token) end
local there = alive(token)
there = there == nil and -1 or there and 1 or 0
if mode == 'now' then
  hand_on()
  entomb(KEYS[7], token, math.max(tonumber(ARGV[6]), left))
  return {4, left, tonumber(n), there, told, {}, token}
end
local answer = {1, left, tonumber(n), there, told, {}, token}
local seen = {}
for i = 8, #ARGV, 2 do seen[ARGV[i]] = tonumber(ARGV[i + 1]) end
local function absent(id) table.insert(answer[6], id) end
--#include part/gone.lua
if gone(token, n, tonumber(grace), of) then
  redis.call('HDEL', KEYS[5], of)
  hand_on()
  answer[1] = 5
end
return answer
