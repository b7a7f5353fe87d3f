-- SPDX-License-Identifier: MIT
-- room for one more note beside the lock, in the hash `breaks`. What is no such hash goes, and so
-- do very many notes: whoever still wants a lock broken writes its mark again when it looks.
local function make_room()
  local kind = redis.call('TYPE', breaks).ok
  if kind ~= 'none' and (kind ~= 'hash' or redis.call('HLEN', breaks) >= 1000) then
    redis.call('DEL', breaks)
  end
end
