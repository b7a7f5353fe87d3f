-- SPDX-License-Identifier: MIT
-- barrier_open: the generation that can be arrived at now; one begins when there is none.
-- KEYS as in part/meeting.lua
-- ARGV 1 parties  2 token of the listener
-- Returns {1, generation, arrived}   {0, generation of those who still have to leave, or 0} wait:
--         the last one is still closing, or not all have left it
--         {-3, value or nothing} not a barrier   {-4} the counter holds something else
--         {-5, parties agreed, arrived} others wait for another number of parties
-- Nobody has arrived by this; a generation that nobody arrives at goes by itself.
--#include part/wrong.lua
--#include part/meeting.lua
--#include part/number.lua
--#include part/listen.lua
if not total and redis.call('EXISTS', KEYS[1]) == 1 then return {-3, meeting} end
local parties = tonumber(ARGV[1])
if total and arrived > 0 and total ~= parties then return {-5, total, arrived} end
local leaving = KEYS[10] and redis.pcall('GETRANGE', KEYS[9], 0, 127)
leaving = type(leaving) == 'string' and string.match(leaving, '^barrier%.%d+%.%d+:(%d+):0$')
if leaving or (total and arrived >= total) then
  listen(KEYS[4], ARGV[2])
  return {0, tonumber(leaving or 0)}
end
if total == parties then return {1, tonumber(generation), arrived} end
local n, e = number()
if not n then return wrong(e, -4) end
redis.call('SET', KEYS[1], string.format('barrier.%.0f.0:%.0f:0', parties, n), 'PX', 10000)
redis.call('DEL', KEYS[3], KEYS[7])
return {1, n, 0}
