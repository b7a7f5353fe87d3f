-- SPDX-License-Identifier: MIT
-- the latch: what is left, of how much, its generation; nil: there is none. Or nil, nil, nil and
-- the answer: the key or a companion holds something else.
local function latch()
  local value = redis.pcall('GETRANGE', KEYS[1], 0, 127)
  if type(value) == 'table' then return nil, nil, nil, wrong(value, -3) end
  for i = 3, 4 do
    local set = redis.pcall('ZCARD', KEYS[i])
    if type(set) == 'table' then return nil, nil, nil, wrong(set, -3) end
  end
  local left, total, generation = string.match(value, '^latch%.(%d+)%.(%d+):(%d+):0$')
  if left then return tonumber(left), total, generation end
  if redis.call('EXISTS', KEYS[1]) == 1 then return nil, nil, nil, {-3, value} end
end
local function longer(ttl)
  return math.max(redis.call('PTTL', KEYS[1]), tonumber(ttl))
end
