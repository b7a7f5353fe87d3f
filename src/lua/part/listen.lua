-- SPDX-License-Identifier: MIT
-- put a token on the list of those who wait for news of a key, for half a minute: it asks again
-- before that. The list's type has been checked.
local function listen(listeners, token)
  local t = redis.call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000)
  redis.call('ZREMRANGEBYSCORE', listeners, '-inf', string.format('%.0f', now))
  redis.call('ZADD', listeners, string.format('%.0f', now + 30000), token)
  redis.call('PEXPIRE', listeners, 30000)
end
