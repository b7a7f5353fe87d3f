-- hand the lock, which is free or whose owner is done, to the first living waiter: it owns it at
-- once, for as long as its claim window, and is told. Dead ones are dropped, 100 at the most: the
-- looks do the rest. True when somebody got it; else the lock is free now.
local channels = string.sub(counter, 1, -6) .. 's:'
local function alive(token)
  return redis.call('PUBSUB', 'NUMSUB', channels .. string.sub(token, 1, 32))[2] > 0
end
local function pass()
  for _ = 1, 100 do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head then break end
    local token, grace, claim, owner = string.match(head, '^([^:]+):(%d+):(%d+):(.*)$')
    redis.call('ZREM', queue, head)
    if token and alive(token) then
      local n = number()
      if not n then break end
      n = string.format('%.0f', n)
      if owner == '' then
        redis.call('SET', lock, token .. ':' .. n .. ':' .. grace, 'PX', claim)
      else
        redis.call('SET', lock, owner, 'PX', claim)
        redis.call('SET', own, token .. ':' .. n, 'PX', claim)
      end
      redis.pcall('PUBLISH', channels .. string.sub(token, 1, 32), 'granted ' .. token .. ' ' .. n .. ' ' .. lock)
      return true
    end
  end
  redis.call('DEL', lock, own)
  return false
end
