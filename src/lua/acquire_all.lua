-- SPDX-License-Identifier: MIT
-- acquire_all: take several locks at once, or none of them; nobody waits here.
-- KEYS 1 fencing counter, then for each lock: lock, queue, tombstones
-- ARGV for each lock: token, ttl ms, grace ms, owner id or '', limit, weight (0: for oneself alone)
-- Returns the fencing numbers, in order; those of tokens that have their lock already as well
-- or {-1, which} held by others, or others wait for it, or it is the token's, and broken since
-- {-2, which} this token was given up   {-3, which} not a lock
-- {-4, 1} the counter holds something else
-- {-7, which, limit} others agreed on another limit   {-8, which, limit} more than the limit
-- Nobody gets anything before it is certain that all of them can be had; but one that is free goes
-- to who waits for it, and the dead among those are dropped.
local counter = KEYS[1]
--#include part/wrong.lua
--#include part/number.lua
--#include part/broken.lua
local function open(i)
  local lock, queue, tombs = KEYS[3 * i - 1], KEYS[3 * i], KEYS[3 * i + 1]
  local token, ttl, grace, owner = ARGV[6 * i - 5], ARGV[6 * i - 4], ARGV[6 * i - 3],
    ARGV[6 * i - 2]
  local limit, weight = tonumber(ARGV[6 * i - 1]), tonumber(ARGV[6 * i])
  local own = string.sub(queue, 1, -2) .. 'own'
  --#include part/pass.lua
  local s, mine
  local self = {}
  function self.refusal()
    local given_up, value = redis.pcall('ZSCORE', tombs, token),
      redis.pcall('GETRANGE', lock, 0, 511)
    local waiting, held = redis.pcall('ZCARD', queue), redis.pcall('ZCARD', holders)
    local known, record = redis.pcall('HLEN', details), redis.pcall('GETRANGE', own, 0, 127)
    for _, answer in ipairs({given_up, value, waiting, held, known, record}) do
      if type(answer) == 'table' then return wrong(answer, -3) end
    end
    if given_up then return {-2} end
    if owner == '' then record = value end
    if string.sub(record, 1, #token + 1) == token .. ':' and (owner == '' or value == owner) then
      mine = tonumber(string.match(record, '^:(%d+)', #token + 1))
    end
    s = sharing(value)
    mine = mine or s and number_of(token)
    if mine then return broken(string.sub(queue, 1, -2), mine) and {-1} or nil end
    if s and dismiss_ended(s) > 0 then s = settle(s) end
    local free = redis.call('EXISTS', lock) == 0
    if free and waiting > 0 then
      free = not pass()
      s, waiting = sharing(redis.call('GETRANGE', lock, 0, 511)), redis.call('ZCARD', queue)
    end
    if weight == 0 then return (not free or waiting > 0) and {-1} or nil end
    local agreed = s or free and begin(limit)
    if not agreed then return {-1} end
    if not agrees(agreed, limit) then return {-7, agreed.limit} end
    if agreed.limit > 0 and weight > agreed.limit then return {-8, agreed.limit} end
    s = agreed
    if waiting > 0 or not fits(s, weight) then return {-1} end
  end
  function self.number()
    if mine then return mine end
    return number()
  end
  function self.grant(n)
    local text = string.format('%.0f', n)
    if mine and weight == 0 then redis.call('DEL', marks) end -- of absence: it is there
    if weight > 0 then
      s.generation = s.generation or text
      if mine then dismiss(s, token) end
      admit(s, token, tonumber(ttl), text, grace, weight)
      settle(s)
    elseif owner ~= '' then
      redis.call('SET', lock, owner, 'PX', ttl)
      redis.call('SET', own, token .. ':' .. text, 'PX', ttl)
    else
      redis.call('SET', lock, token .. ':' .. text .. ':' .. grace, 'PX', ttl)
    end
  end
  return self
end
local locks, numbers = {}, {}
for i = 1, (#KEYS - 1) / 3 do
  locks[i] = open(i)
  local refused = locks[i].refusal()
  if refused and refused.err then return refused end
  if refused then return {refused[1], i, refused[2]} end
end
for i, lock in ipairs(locks) do
  local n, e = lock.number()
  if not n then
    e = wrong(e, -4)
    return e.err and e or {-4, 1}
  end
  numbers[i] = n
end
for i, lock in ipairs(locks) do lock.grant(numbers[i]) end
return numbers
