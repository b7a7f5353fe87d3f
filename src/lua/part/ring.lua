-- SPDX-License-Identifier: MIT
-- there is news of a key: ring everybody on its list and take them off it; who still waits asks,
-- and puts itself back. 1000 at the most: a rung one's question rings the next, and all ask by
-- themselves.
--#include session.lua
local function ring(listeners)
  local some = redis.pcall('ZRANGE', listeners, 0, 999)
  if some.err or not some[1] then return end
  for _, token in ipairs(some) do
    tell(token, 'ring ' .. token)
  end
  redis.call('ZREM', listeners, unpack(some))
end
