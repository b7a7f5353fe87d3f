-- SPDX-License-Identifier: MIT
-- leader: who leads, with the value of that very term; and listen for the next change.
-- KEYS 1 lock  2 value  3 listeners
-- ARGV 1 longest value  [2 token of a listener]
-- Returns {0} nobody   {1, first bytes of the lock, ms left, server time in ms, 1 there is a value,
-- value}   {-3} not a lock
-- A value of another term is left over from somebody who leads no more: it is not shown.
local lock = redis.pcall('GETRANGE', KEYS[1], 0, 511)
if type(lock) == 'table' then
  if string.find(lock.err, 'WRONGTYPE') then return {-3} end
  return lock
end
local left = redis.call('PTTL', KEYS[1])
if ARGV[2] and type(redis.pcall('ZCARD', KEYS[3])) == 'number' then
  --#include part/listen.lua
  listen(KEYS[3], ARGV[2])
end
if left == -2 then return {0} end
local t = redis.call('TIME')
local found = {1, lock, left, t[1] * 1000 + math.floor(t[2] / 1000), 0, ''}
local term = string.match(lock, '^%x+%.%d+:(%d+):%d+$')
if term then
  local value = redis.pcall('GETRANGE', KEYS[2], 0, 63 + tonumber(ARGV[1]))
  local of, said = string.match(type(value) == 'string' and value or '', '^(%d+):%d+:(.*)$')
  if of == term then found[5], found[6] = 1, said end
end
return found
