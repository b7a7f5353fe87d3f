-- SPDX-License-Identifier: MIT
-- latch_look: where a latch stands; a waiter is put on the list of listeners unless it is at zero.
-- KEYS 1 latch  2 fencing counter  3 listeners  4 done
-- ARGV 1 token of a waiter, or '': just looking  2 the generation it waits for, 0: any  3 ttl ms
-- Returns {left, total, generation}; left is 0 also when the generation waited for got there before
--         {-1} there is no latch
--         {-2, generation that is there or 0} the one waited for ended without reaching zero
--         {-3, value or nothing} not a latch
-- A waiter keeps the latch alive; just looking changes nothing.
local counter, memory = KEYS[2], KEYS[4]
--#include part/wrong.lua
--#include part/latch.lua
--#include part/done.lua
--#include part/ring.lua
--#include part/listen.lua
local token, wanted = ARGV[1], ARGV[2]
local left, total, generation, other = latch()
if wanted ~= '0' and generation ~= wanted then
  if not (other and #other < 2) and done('zero:' .. wanted) then return {0, 0, tonumber(wanted)} end
  return other or {-2, tonumber(generation or 0)}
end
if other then return other end
if left == 0 then
  if token ~= '' then ring(KEYS[3]) end
elseif token ~= '' then
  listen(KEYS[3], token)
end
if not left then return {-1} end
if token ~= '' then redis.call('PEXPIRE', KEYS[1], longer(ARGV[3])) end
return {left, tonumber(total), tonumber(generation)}
