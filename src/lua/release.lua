-- SPDX-License-Identifier: MIT
-- release: give a lock back, if its value still is exactly ours, and hand it to who waits first.
-- KEYS 1 lock  2 fencing counter  3 queue  4 own
-- ARGV 1 value  [2 value of own]
-- Returns 1 released  0 not ours: nothing was changed
-- One byte more than the value is read: a longer one cannot pass for ours, nor cost much.
local lock, counter, queue, own = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local value = redis.pcall('GETRANGE', lock, 0, #ARGV[1])
if value ~= ARGV[1] then
  if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE') then return value end
  return 0
end
if ARGV[2] then
  if redis.pcall('GETRANGE', own, 0, #ARGV[2]) ~= ARGV[2] then return 0 end
  redis.call('DEL', own)
end
if redis.call('EXISTS', queue) == 0 then
  redis.call('DEL', lock)
  return 1
end
--#include part/number.lua
--#include part/pass.lua
pass()
return 1
