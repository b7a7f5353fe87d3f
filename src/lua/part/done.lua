-- SPDX-License-Identifier: MIT
-- requests and rounds that are done, each with a small number, remembered for ms: so a copy of a
-- request is known, and how a round ended. The set's type has been checked.
local time = redis.call('TIME')
local function done(member)
  local score = redis.call('ZSCORE', memory, member)
  return score and tonumber(score) % 1048576
end
local function remember(member, n, ms)
  local now = time[1] * 1048576
  redis.call('ZREMRANGEBYSCORE', memory, '-inf', string.format('%.0f', now))
  redis.call('ZADD', memory, string.format('%.0f', now + math.ceil(ms / 1000) * 1048576 + n),
    member)
  redis.call('PEXPIRE', memory, math.max(redis.call('PTTL', memory), tonumber(ms)))
end
