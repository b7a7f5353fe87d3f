-- SPDX-License-Identifier: MIT
-- unshare: give back a part of a lock that several hold, if it still is ours.
-- KEYS 1 lock  2 fencing counter  3 queue
-- ARGV 1 token
-- Returns 1 given back  0 not ours: nothing was changed
-- A downgrade of which nobody heard may not have come: then the token still has the lock alone.
local lock, counter, queue = KEYS[1], KEYS[2], KEYS[3]
local own = string.sub(queue, 1, -2) .. 'own'
--#include part/number.lua
--#include part/pass.lua
local value = redis.pcall('GETRANGE', lock, 0, 511)
if type(value) == 'table' then
  if not string.find(value.err, 'WRONGTYPE') then return value end
  return 0
end
local s, token = sharing(value), ARGV[1]
if not s then
  if string.sub(value, 1, #token + 1) ~= token .. ':' then return 0 end
  pass()
  return 1
end
if not left_of(token) then return 0 end
dismiss(s, token)
dismiss_ended(s)
pass(s)
return 1
