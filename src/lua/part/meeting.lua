-- SPDX-License-Identifier: MIT
-- a meeting of a barrier. KEYS 1 meeting  2 fencing counter  3 parties  4 listeners  5 done
-- 6 broken  7 absent mark  8 reign  [9 the leaving  10 its parties]
local counter, memory = KEYS[2], KEYS[5]
local meeting = redis.pcall('GETRANGE', KEYS[1], 0, 127)
if type(meeting) == 'table' then return wrong(meeting, -3) end
for i = 3, 5 do
  local set = redis.pcall('ZCARD', KEYS[i])
  if type(set) == 'table' then return wrong(set, -3) end
end
local total, arrived, generation = meeting:match('^barrier%.(%d+)%.(%d+):(%d+):0$')
total, arrived = tonumber(total), tonumber(arrived)
