-- SPDX-License-Identifier: MIT
-- reach a session through its channel, and know whether its connection stands. In a cluster the
-- channel lies in the lock's slot and is sharded, where the server knows that (7.0); the counter's
-- name tells.
local channels, sharded = string.sub(counter, 1, -6) .. 's:', string.sub(counter, -7) == '}:fence'
local function unknown(answer)
  return type(answer) == 'table' and answer.err and string.find(string.lower(answer.err), 'unknown')
end
-- how many listen on each: {channel, number, ...}, or an error
local function listeners_of(...)
  local answer = redis.pcall('PUBSUB', sharded and 'SHARDNUMSUB' or 'NUMSUB', ...)
  if sharded and unknown(answer) then
    sharded = false
    return listeners_of(...)
  end
  return answer
end
-- nil: nobody may say
local function alive(token)
  local asked = listeners_of(channels .. string.sub(token, 1, 32))
  if asked.err then return nil end
  return asked[2] > 0
end
local function tell(token, text)
  local channel = channels .. string.sub(token, 1, 32)
  if sharded and not unknown(redis.pcall('SPUBLISH', channel, text)) then return end
  redis.pcall('PUBLISH', channel, text)
end
