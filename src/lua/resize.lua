-- SPDX-License-Identifier: MIT
-- resize: change for all how many may hold a lock at once.
-- KEYS 1 lock  2 fencing counter  3 queue
-- ARGV 1 new limit
-- Returns {1, what it was; 0: nobody uses it now}  {-1} held by one alone or by readers
--         {-3} not a lock
-- Nobody loses what it holds. The new limit, and the one that callers still name, are remembered
-- for a week after the last use, or until it is what they name again.
local lock, counter, queue = KEYS[1], KEYS[2], KEYS[3]
local own = string.sub(queue, 1, -2) .. 'own'
--#include part/wrong.lua
--#include part/number.lua
--#include part/pass.lua
local value, new = redis.pcall('GETRANGE', lock, 0, 511), tonumber(ARGV[1])
local held, known = redis.pcall('ZCARD', holders), redis.pcall('HLEN', details)
for _, answer in ipairs({value, held, known, redis.pcall('GET', settings)}) do
  if type(answer) == 'table' then return wrong(answer, -3) end
end
local s, was, named = sharing(value), decided()
if s and s.limit == 0 or not s and value ~= '' then return {-1} end
was = s and s.limit or tonumber(was or 0)
named = tonumber(named or (s and s.limit) or 0)
if new == named then
  redis.call('DEL', settings)
else
  redis.call('SET', settings, string.format('%d %d', new, named), 'PX', week)
end
if s then
  s.limit = new
  dismiss_ended(s)
  pass(s)
end
return {1, was}
