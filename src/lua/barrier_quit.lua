-- SPDX-License-Identifier: MIT
-- barrier_quit: a party gives up: it breaks the meeting for the others, unless it is over.
-- KEYS as in part/meeting.lua
-- ARGV 1 generation  2 phase  3 token  4 its member  5 why  6 how long to remember, ms
--      7 '1': it is inside, and counts as one of them though it has not arrived here
-- Returns {3, index} all have met before  {4, why} broken, by this or before
--         {0} it had not arrived, and never will: nothing was broken
--#include part/wrong.lua
--#include part/meeting.lua
--#include part/done.lua
--#include part/ring.lua
--#include part/verdict.lua
--#include part/break.lua
local index = done(ARGV[2] .. ARGV[3])
if not index or index == 1048575 then
  remember(ARGV[2] .. ARGV[3], 1048575, ARGV[6])
  if ARGV[7] ~= '1' then return {0} end
end
if generation ~= ARGV[1] then return verdict(ARGV[2], ARGV[1], index) end
return break_it(ARGV[5], ARGV[4])
