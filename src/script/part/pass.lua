-- hand the lock, which is free or whose owner is done, to the first living waiter: it owns it at
-- once, for as long as its claim window, and is told. Dead ones are dropped, 100 at the most: the
-- looks do the rest. True when somebody got it; else the lock is free now. Whether it can be told
-- does not matter: it looks by itself. Where nobody may be asked for, the looks do it all.
local channels = string.sub(counter, 1, -6) .. 's:'
local function alive(token)
  local asked = redis.pcall('PUBSUB', 'NUMSUB', channels .. string.sub(token, 1, 32))
  if asked.err then return nil end
  return asked[2] > 0
end
local function pass()
  for _ = 1, 100 do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head then break end
    local token, grace, claim, nonce, owner = string.match(head, '^([^:]+):(%d+):(%d+):(%x*):(.*)$')
    local living = token and alive(token)
    if token and living == nil then break end
    redis.call('ZREM', queue, head)
    if living then
      local n = number()
      if not n then break end
      n = string.format('%.0f', n)
      if owner == '' then
        redis.call('SET', lock, token .. ':' .. n .. ':' .. grace, 'PX', claim)
      else
        redis.call('SET', lock, owner, 'PX', claim)
        redis.call('SET', own, token .. ':' .. n, 'PX', claim)
      end
      redis.pcall('PUBLISH', channels .. string.sub(token, 1, 32),
        'granted ' .. token .. ' ' .. n .. ' ' .. nonce .. ' ' .. lock)
      return true
    end
  end
  redis.call('DEL', lock, own)
  return false
end
