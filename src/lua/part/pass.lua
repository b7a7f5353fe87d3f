-- SPDX-License-Identifier: MIT
-- hand the lock to the first living waiters: to one alone, or to all at the front who may share it.
-- Each owns it at once, for as long as its claim window, and is told. Without s it is free or its
-- owner is done; s is who still shares it. Dead ones are dropped: one, then ten, then a hundred at
-- a time, since the first one lives as a rule. 100 living or 2000 dead at the most, so that the
-- server is not kept: whoever is first then is told to look, and so on. True when somebody holds it
-- then; else the lock is free.
-- Whether one can be told does not matter: it looks by itself. Where nobody may be asked for, the
-- looks do it all. Who could never share what the others agreed on is sent away, to hear it when it
-- asks again.
--#include shared.lua
--#include session.lua
local form = '^([^:]+):(%d+):(%d+):(%x*)/?(%d*)%.?(%d*):(.*)$'
local batch = 1
-- a token that gets nothing any more: a late copy of its request may have joined the queue again
local leaving
-- the first who lives, after dropping the dead before it; and whether there may be more
local function first_living()
  local heads, asked, dead, found = redis.pcall('ZRANGE', queue, 0, batch - 1), {}, {}, nil
  if not heads[1] then return nil, false end
  for i, head in ipairs(heads) do asked[i] = channels .. string.sub(head, 1, 32) end
  local present = listeners_of(unpack(asked))
  for i, head in ipairs(heads) do
    local known = string.match(head, form)
    if known and known ~= leaving and (present.err or present[2 * i] > 0) then
      found = head
      break
    end
    dead[i] = head
  end
  if dead[1] then redis.call('ZREM', queue, unpack(dead)) end
  if present.err then return nil, false end
  if not found then batch = math.min(batch * 10, 100) end
  return found, true
end
local function pass(s)
  if s and redis.call('ZCARD', holders) == 0 then s = nil end
  local step = 0
  while true do
    step = step + math.max(batch / 20, 1)
    local head, more = first_living()
    if not head and not more then break end
    local token, grace, claim, nonce, limit, weight, owner = string.match(head or '', form)
    if step > 100 then
      if head then tell(token, 'watch ' .. token) end
      break
    end
    if head then
      limit, weight = tonumber(limit), tonumber(weight)
      local joined = limit and (s or begin(limit))
      local never = joined and (not agrees(joined, limit)
        or not fits({limit = joined.limit, used = 0}, weight))
      if s and not never and not (limit and fits(s, weight)) then break end
      redis.call('ZREM', queue, head)
      local n = not never and number()
      if never then
        tell(token, 'watch ' .. token)
      elseif not n then
        break
      else
        n = string.format('%.0f', n)
        if limit then
          s = joined
          s.generation = s.generation or n
          admit(s, token, tonumber(claim), n, grace, weight)
        elseif owner == '' then
          redis.call('SET', lock, token .. ':' .. n .. ':' .. grace, 'PX', claim)
        else
          redis.call('SET', lock, owner, 'PX', claim)
          redis.call('SET', own, token .. ':' .. n, 'PX', claim)
        end
        tell(token, 'granted ' .. token .. ' ' .. n .. ' ' .. nonce .. ' ' .. lock)
        if not limit then return true end
      end
    end
  end
  if s then return settle(s) ~= nil end
  redis.call('DEL', lock, own, marks)
  return false
end
