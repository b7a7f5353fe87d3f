-- SPDX-License-Identifier: MIT
-- Was the hold with this number broken? base: the names of the lock's companions without the last
-- letters. Who repeats a request that was granted must not prolong what somebody has broken since.
local function broken(base, n)
  return type(redis.pcall('HGET', base .. 'x', string.format('break:%.0f', n))) == 'string'
end
