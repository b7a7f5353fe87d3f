-- SPDX-License-Identifier: MIT
-- edges: who of a lock's holders waits for what, and who waits for it. Changes nothing.
-- KEYS 1 lock  2 queue  3 own  4 fencing counter
-- ARGV 1 from which waiter on  2 how many of them
-- Returns {server time in ms, limit, edges, number of waiters, waiters}
-- limit: -1 one holds it alone  0 readers  else a semaphore's; -2 nobody whom we know
-- edges: for each holder that waits: its token, its weight, 'UNTIL SINCE TOKEN KEY'
-- waiters: those whom the server sees, 'token weight', weight 0: alone. Without edges nobody's wait
-- concerns anybody: then they are left out.
local lock, queue, own, counter = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
--#include part/session.lua
local base = string.sub(queue, 1, -2)
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local result = {now, -2, {}, 0, {}}
local function text(key, last)
  local found = redis.pcall('GETRANGE', key, 0, last)
  return type(found) == 'string' and found or ''
end
local edges = result[3]
local function note(token, alone)
  local entry = redis.pcall('HGET', base .. 'wf', token)
  local till = type(entry) == 'string' and #entry < 4096 and string.match(entry, '^(%d+) %d+ %S+ ')
  if not till or tonumber(till) <= now then return end
  local detail = not alone and redis.pcall('HGET', base .. 'd', token)
  edges[#edges + 1] = token
  edges[#edges + 1] = string.match(type(detail) == 'string' and detail or '', ':(%d+)$') or '1'
  edges[#edges + 1] = entry
end
local some = redis.pcall('HLEN', base .. 'wf')
if type(some) ~= 'number' or some == 0 then return result end
local value = text(lock, 511)
local limit = string.match(value, '^shared%.(%d+)%.%d+:%d+:0$')
if limit then
  result[2] = tonumber(limit)
  local tokens = redis.pcall('ZRANGEBYSCORE', base .. 'h', string.format('(%.0f', now), '+inf',
    'LIMIT', 0, 1000)
  for _, token in ipairs(tokens) do note(token, false) end
elseif value ~= '' then
  local token = string.match(value, '^(%x+%.%d+):%d+:%d+$')
    or string.match(text(own, 127), '^(%x+%.%d+):%d+$')
  result[2] = -1
  if token then note(token, true) end
end
if not edges[1] then return result end
local all = redis.pcall('ZCARD', queue)
result[4] = type(all) == 'number' and all or 0
local last = ARGV[1] + ARGV[2] - 1
for from = tonumber(ARGV[1]), last, 100 do
  local heads, asked = redis.pcall('ZRANGE', queue, from, math.min(from + 99, last)), {}
  if heads.err or not heads[1] then break end
  for i, head in ipairs(heads) do asked[i] = channels .. string.sub(head, 1, 32) end
  local present = listeners_of(unpack(asked))
  for i, head in ipairs(heads) do
    local token, weight = string.match(head, '^(%x+%.%d+):%d+:%d+:%x*/?%d*%.?(%d*):')
    if token and (present.err or present[2 * i] > 0) then
      result[5][#result[5] + 1] = token .. ' ' .. (weight == '' and '0' or weight)
    end
  end
end
return result
