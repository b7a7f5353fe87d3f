-- SPDX-License-Identifier: MIT
-- a lock that several hold at once: who they are, and until when.
-- The lock's value is shared.<limit>.<used>:<generation>:0; limit 0: as many as may come. holders
-- has each token's deadline, details its fence:grace:weight; both begin empty with each generation
-- and end with the lock, so that a token in them always is of the present one. They are
-- companions of the queue: the same name with another ending, in the same slot.
local holders = string.sub(queue, 1, -2) .. 'h'
local details = string.sub(queue, 1, -2) .. 'd'
local marks = string.sub(queue, 1, -2) .. 'absent'
local settings, week = string.sub(queue, 1, -2) .. 's', 604800000
local clock
local function now()
  if not clock then
    local t = redis.call('TIME')
    clock = t[1] * 1000 + math.floor(t[2] / 1000)
  end
  return clock
end
-- {limit, used, generation} of a value; nil: not held by several
local function sharing(value)
  local limit, used, generation = string.match(value, '^shared%.(%d+)%.(%d+):(%d+):0$')
  if generation then
    return {limit = tonumber(limit), used = tonumber(used), generation = generation}
  end
end
-- write down what became of it; nil when nobody is left, and nothing of it then
local function settle(s)
  local last = redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')[2]
  if not last then
    redis.call('DEL', lock, holders, details, marks)
    return nil
  end
  local left = string.format('%.0f', math.max(tonumber(last) - now(), 1))
  redis.call('SET', lock, string.format('shared.%d.%d:', s.limit, s.used) .. s.generation .. ':0',
    'PX', left)
  redis.call('PEXPIRE', holders, left)
  redis.call('PEXPIRE', details, left)
  return s
end
local function admit(s, token, ms, fence, grace, weight)
  redis.call('ZADD', holders, string.format('%.0f', now() + ms), token)
  local new = redis.call('HSET', details, token, fence .. ':' .. grace .. ':' .. weight)
  s.used = s.used + new * weight
  if s.limit > 0 then redis.call('PEXPIRE', settings, week) end
end
local function dismiss(s, token)
  local weight = string.match(redis.call('HGET', details, token) or '', ':(%d+)$')
  redis.call('ZREM', holders, token)
  redis.call('HDEL', details, token)
  redis.pcall('HDEL', marks, token)
  s.used = math.max(s.used - tonumber(weight or 0), 0)
end
-- whose lease has ended is no holder any more: how many
local function dismiss_ended(s)
  local ended = redis.call('ZRANGEBYSCORE', holders, '-inf', string.format('%.0f', now()),
    'LIMIT', 0, 1000)
  for _, token in ipairs(ended) do dismiss(s, token) end
  return #ended
end
-- what is left of a token's lease, ms; nil: it is no holder, or its lease has ended
local function left_of(token)
  local left = tonumber(redis.call('ZSCORE', holders, token) or 0) - now()
  return left > 0 and left or nil
end
-- the fencing number of a holder; nil when it is none any more, though nobody may have noticed
local function number_of(token)
  return left_of(token)
    and tonumber(string.match(redis.call('HGET', details, token) or '', '^(%d+):'))
end
-- what was decided since about the limit, and the one that callers named before
local function decided()
  local text = redis.pcall('GET', settings)
  return string.match(type(text) == 'string' and text or '', '^(%d+) (%d+)$')
end
-- may one who asks for this limit share in s? The limit may have been changed since it was agreed.
local function agrees(s, limit)
  if s.limit == limit then return true end
  if s.limit == 0 or limit == 0 then return false end
  local new, old = decided()
  return new and (tonumber(old) == 0 or tonumber(old) == limit)
end
local function fits(s, weight)
  return s.limit == 0 or s.used + weight <= s.limit
end
-- a new generation for so many, or for as many as was decided since
local function begin(limit)
  redis.call('DEL', holders, details, marks)
  return {limit = limit > 0 and tonumber(decided() or limit) or 0, used = 0}
end
