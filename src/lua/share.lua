-- SPDX-License-Identifier: MIT
-- share: take a part of a lock that several may hold at once, or join its queue.
-- KEYS 1 lock  2 fencing counter  3 queue  4 tombstones
-- ARGV 1 token  2 ttl ms  3 grace ms  4 claim window ms, 0: do not wait  5 old ticket, 0: none
--      6 limit, 0: none  7 weight  8 nonce of the waiter, hex
--      [9 '1': a lock without a ttl may be given one]
-- Returns the fencing number: granted, or granted before to the same token;
-- or {-1, ttl left, value, ticket} not now; with a ticket: in the queue now
-- {-2} this token was given up   {-3} not a lock   {-4} the counter holds something else
-- {-6, number} handed over to this token before, or broken since: to be claimed
-- {-7, limit} others agreed on another limit   {-8, limit} the weight is more than the limit
-- Whoever waits comes first, whatever would fit: nobody who asks for much is starved.
local lock, counter, queue = KEYS[1], KEYS[2], KEYS[3]
local own = string.sub(queue, 1, -2) .. 'own'
local token, ttl, grace, claim = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local limit, weight = tonumber(ARGV[6]), tonumber(ARGV[7])
--#include part/wrong.lua
--#include part/number.lua
--#include part/pass.lua
--#include part/join.lua
--#include part/mend.lua
--#include part/broken.lua
local given_up, value = redis.pcall('ZSCORE', KEYS[4], token), redis.pcall('GETRANGE', lock, 0, 511)
local waiting, held = redis.pcall('ZCARD', queue), redis.pcall('ZCARD', holders)
local known = redis.pcall('HLEN', details)
for _, answer in ipairs({given_up, value, waiting, held, known}) do
  if type(answer) == 'table' then return wrong(answer, -3) end
end
if given_up then return {-2} end
local left, s = redis.call('PTTL', lock), sharing(value)
if left == -1 and ARGV[9] == '1' then
  if s then
    s = settle(s)
    left = redis.call('PTTL', lock)
  else
    left = mend(value, math.max(ttl, 10000))
  end
end
local free, member = left == -2,
  token .. ':' .. grace .. ':' .. claim .. ':' .. ARGV[8] .. '/' .. limit .. '.' .. weight .. ':'
local mine = s and number_of(token)
if mine then
  local rest = left_of(token)
  if (claim > 0 and rest <= claim) or broken(string.sub(queue, 1, -2), mine) then
    return {-6, mine}
  end
  redis.pcall('HDEL', marks, token) -- of absence: it is there
  if rest < ttl then
    redis.call('ZADD', holders, string.format('%.0f', now() + ttl), token)
    settle(s)
  end
  return mine
end
if s and dismiss_ended(s) > 0 then
  s = settle(s)
  free = not s
end
local fresh = free and begin(limit)
local agreed = s or fresh
if agreed and not agrees(agreed, limit) then return {-7, agreed.limit} end
if agreed and agreed.limit > 0 and weight > agreed.limit then return {-8, agreed.limit} end
local ticket, e = 0, nil
if waiting > 0 or not (free or s and fits(s, weight)) then
  if claim > 0 then
    ticket, e = join(member, ARGV[5])
    if not ticket then return wrong(e, -4) end
  end
  if (s or free) and (waiting > 0 or ticket > 0) then
    pass(s)
    value, left = redis.call('GETRANGE', lock, 0, 511), redis.call('PTTL', lock)
    s, free = sharing(value), left == -2
    mine = s and number_of(token)
    if mine then return {-6, mine} end
  end
  local before = redis.call('ZCARD', queue) - (ticket > 0 and 1 or 0)
  if before > 0 or not (free or s and agrees(s, limit) and fits(s, weight)) then
    return {-1, left, value, ticket}
  end
  redis.call('ZREM', queue, member)
end
local n
n, e = number()
if not n then return wrong(e, -4) end
s = s or fresh or begin(limit)
s.generation = s.generation or string.format('%.0f', n)
admit(s, token, ttl, string.format('%.0f', n), grace, weight)
settle(s)
return n
