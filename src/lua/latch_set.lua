-- SPDX-License-Identifier: MIT
-- latch_set: set a latch, once, however often the request arrives.
-- KEYS 1 latch  2 fencing counter  3 listeners  4 done
-- ARGV 1 token  2 count  3 ttl ms  4 how long to remember the token, ms
--      5 '1': even if it counts down
-- Returns 1 set, now or before by the same token
--         {-1, left, total} one is still counting down: nothing was changed
--         {-3, value or nothing} not a latch   {-4} the counter holds something else
-- A latch at zero, or none, may be set; every setting has a generation of its own, by which those
-- who wait know that the one they wait for is over.
local counter, memory = KEYS[2], KEYS[4]
--#include part/wrong.lua
--#include part/number.lua
--#include part/latch.lua
--#include part/done.lua
--#include part/ring.lua
local left, total, _, other = latch()
if other then return other end
if done(ARGV[1]) then return 1 end
if left and left > 0 and ARGV[5] ~= '1' then return {-1, left, tonumber(total)} end
local n, e = number()
if not n then return wrong(e, -4) end
redis.call('SET', KEYS[1], 'latch.' .. ARGV[2] .. '.' .. ARGV[2] .. string.format(':%.0f:0', n),
  'PX', ARGV[3])
remember(ARGV[1], 0, ARGV[4])
ring(KEYS[3])
return 1
