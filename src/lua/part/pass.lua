-- hand the lock to the first living waiters: to one alone, or to all at the front who may share it.
-- Each owns it at once, for as long as its claim window, and is told. Without s it is free or its
-- owner is done; s is who still shares it. Dead ones are dropped. 100 steps at the most: whoever is
-- first then is told to look, and so on. True when somebody holds it then; else the lock is free.
-- Whether one can be told does not matter: it looks by itself. Where nobody may be asked for, the
-- looks do it all. Who could never share what the others agreed on is sent away, to hear it when it
-- asks again.
--#include shared.lua
--#include session.lua
local function pass(s)
  if s and redis.call('ZCARD', holders) == 0 then s = nil end
  for step = 1, 101 do
    local head = redis.pcall('ZRANGE', queue, 0, 0)[1]
    if not head then break end
    local token, grace, claim, nonce, limit, weight, owner =
      string.match(head, '^([^:]+):(%d+):(%d+):(%x*)/?(%d*)%.?(%d*):(.*)$')
    local living = token and alive(token)
    if token and living == nil then break end
    if step > 100 then
      if living then tell(token, 'watch ' .. token) end
      break
    end
    limit, weight = tonumber(limit), tonumber(weight)
    local joined = limit and (s or begin(limit))
    local never = joined and (not agrees(joined, limit)
      or not fits({limit = joined.limit, used = 0}, weight))
    if living and s and not never and not (limit and fits(s, weight)) then break end
    redis.call('ZREM', queue, head)
    if living and never then
      tell(token, 'watch ' .. token)
    elseif living then
      local n = number()
      if not n then break end
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
  if s then return settle(s) ~= nil end
  redis.call('DEL', lock, own, marks)
  return false
end
