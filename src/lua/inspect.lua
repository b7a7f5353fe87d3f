-- SPDX-License-Identifier: MIT
-- inspect: what is there, changing nothing.
-- KEYS 1 lock  2 own  3 queue
-- ARGV 1 how many waiters, and how many holders, at the most
--      [2 name of the fencing counter: then it is looked whether the server sees their sessions]
-- Returns {type, first bytes of the value, ttl left, own or '', server time in ms,
--          number of waiters, the first of them in order,
--          number of holders of a shared lock, the first of them: token, fence:grace:weight,
--          deadline, ...,
--          for each of these holders, or for the only one, then for each of these waiters: 1 its
--          session is seen, 0 it is not, -1 nobody may say,
--          for each of these holders: mark of absence or '', what it waits for or '', ...,
--          value of an election or '', settings of a semaphore or ''}
-- A replica sees no sessions but those that are connected to it: it says nothing of them.
local t = redis.call('TIME')
local most, base = tonumber(ARGV[1]), string.sub(KEYS[3], 1, -2)
local function text(value, longest)
  return type(value) == 'string' and string.sub(value, 1, longest) or ''
end
local value = text(redis.pcall('GETRANGE', KEYS[1], 0, 511), 512)
local own = text(redis.pcall('GETRANGE', KEYS[2], 0, 127), 128)
local function members(key, ...)
  local count, first = redis.pcall('ZCARD', key), {}
  if type(count) ~= 'number' then return 0, first end
  for _, member in ipairs(redis.call('ZRANGE', key, 0, most - 1, ...)) do
    first[#first + 1] = string.sub(member, 1, 511)
  end
  return count, first
end
local waiting, waiters = members(KEYS[3])
local holding, scored = members(base .. 'h', 'WITHSCORES')
local holders, tokens, marked = {}, {}, {}
for i = 1, #scored, 2 do
  tokens[#tokens + 1] = scored[i]
  holders[#holders + 1] = scored[i]
  holders[#holders + 1] = text(redis.pcall('HGET', base .. 'd', scored[i]), 99)
  holders[#holders + 1] = scored[i + 1]
end
if not tokens[1] then
  local form = '^%x+%.%d+'
  tokens[1] = string.match(value, form) or string.match(own, form) or ''
  marked[tokens[1]] = value
end
local notes = {}
local function note(key, field)
  local length = redis.pcall('HSTRLEN', key, field)
  local short = type(length) == 'number' and length > 0 and length <= 1280
  notes[#notes + 1] = short and redis.call('HGET', key, field) or ''
end
for _, token in ipairs(tokens) do
  note(base .. 'absent', marked[token] or token)
  note(base .. 'wf', token)
end
local seen, asked = {}, {}
if ARGV[2] then
  local counter = ARGV[2]
  --#include part/session.lua
  for _, list in ipairs({tokens, waiters}) do
    for _, token in ipairs(list) do asked[#asked + 1] = channels .. string.sub(token, 1, 32) end
  end
  local found = listeners_of(unpack(asked))
  local missing = found.err
  for i = 1, #asked do
    seen[i] = not found.err and (found[2 * i] > 0 and 1 or 0) or -1
    missing = missing or seen[i] == 0
  end
  if missing then
    local info = redis.pcall('INFO', 'replication')
    if type(info) == 'string' and string.find(info, 'role:slave', 1, true) then
      for i = 1, #asked do seen[i] = -1 end
    end
  end
end
return {
  redis.call('TYPE', KEYS[1]).ok, value, redis.call('PTTL', KEYS[1]), own,
  t[1] * 1000 + math.floor(t[2] / 1000),
  waiting, waiters, holding, holders, seen, notes,
  text(redis.pcall('GETRANGE', base .. 'v', 0, 1087), 1088),
  text(redis.pcall('GETRANGE', base .. 's', 0, 31), 32),
}
