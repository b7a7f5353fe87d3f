-- SPDX-License-Identifier: MIT
-- downgrade: who has a lock alone lets others share it, and keeps its own part without a gap.
-- KEYS 1 lock  2 fencing counter  3 queue
-- ARGV 1 token  2 value of the lock  3 ttl ms
-- Returns 1 shared now, or before by the same request  0 not ours: nothing was changed
--         'break WHEN BY TEXT' it was broken, and is not prolonged: nothing was changed
-- The number stays: nobody was between.
local lock, counter, queue = KEYS[1], KEYS[2], KEYS[3]
local own = string.sub(queue, 1, -2) .. 'own'
--#include part/number.lua
--#include part/pass.lua
local value = redis.pcall('GETRANGE', lock, 0, 511)
if type(value) == 'table' then
  if not string.find(value.err, 'WRONGTYPE') then return value end
  return 0
end
if sharing(value) then return number_of(ARGV[1]) and 1 or 0 end
if value ~= ARGV[2] then return 0 end
local fence, grace = string.match(value, ':(%d+):(%d+)$')
local breaks = string.sub(queue, 1, -2) .. 'x'
local broken = redis.pcall('HGET', breaks, 'break:' .. fence)
if type(broken) == 'string' then
  redis.call('HSET', breaks, 'told:' .. fence, '1')
  return 'break ' .. string.sub(broken, 1, 500)
end
local s = begin(0)
s.generation = fence
admit(s, ARGV[1], math.max(tonumber(ARGV[3]), redis.call('PTTL', lock)), fence, grace, 1)
pass(s)
return 1
