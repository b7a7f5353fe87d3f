-- SPDX-License-Identifier: MIT
-- latch_down: count a latch down, once, however often the request arrives; never below zero.
-- KEYS 1 latch  2 fencing counter  3 listeners  4 done
-- ARGV 1 token  2 by how much  3 ttl ms  4 how long to remember the token, ms
-- Returns what this request left: 0 or more   {-1} there is no latch
--         {-3, value or nothing} not a latch
-- That a generation reached zero is remembered for a while: so a waiter that asks after the latch
-- was set anew is not told that it was broken.
local counter, memory = KEYS[2], KEYS[4]
--#include part/wrong.lua
--#include part/latch.lua
--#include part/done.lua
--#include part/ring.lua
local left, total, generation, other = latch()
if other then return other end
local before = done(ARGV[1])
if before then return before end
if not left then return {-1} end
local now_left = math.max(0, left - tonumber(ARGV[2]))
redis.call('SET', KEYS[1], string.format('latch.%.0f.', now_left)
  .. total .. ':' .. generation .. ':0', 'PX', longer(ARGV[3]))
remember(ARGV[1], now_left, ARGV[4])
if now_left == 0 then
  if left > 0 then remember('zero:' .. generation, 0, ARGV[4]) end
  ring(KEYS[3])
end
return now_left
