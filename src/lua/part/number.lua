-- SPDX-License-Identifier: MIT
-- the next fencing number, or the one that the counter has just given; or nil and the error
local function number(n)
  n = n or redis.pcall('INCR', counter)
  if type(n) == 'table' then return nil, n end
  if n < 1600000000000000 then
    local t = redis.call('TIME')
    n = (t[1] + 60) * 1000000 + t[2]
    redis.call('SET', counter, string.format('%.0f', n))
  elseif n > 9007199254740000 then
    redis.call('DECR', counter)
    return nil, {err = 'ERR overflow'}
  end
  return n
end
