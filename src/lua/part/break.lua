-- SPDX-License-Identifier: MIT
-- end a meeting that will not be complete: everybody is told why, and the next arrival begins anew
local function break_it(why, who)
  redis.call('DEL', KEYS[1], KEYS[3], KEYS[7])
  redis.call('SET', KEYS[6], generation .. ' ' .. why .. ' ' .. who, 'PX', 60000)
  ring(KEYS[4])
  return {4, why .. ' ' .. who}
end
