-- SPDX-License-Identifier: MIT
-- how a generation ended that is not there any more
local function verdict(phase, wanted, index)
  if done(phase .. wanted) then return {3, index or 0} end
  local why = redis.pcall('GETRANGE', KEYS[6], 0, 1023)
  if type(why) == 'string' and why:sub(1, #wanted + 1) == wanted .. ' ' then
    return {4, why:sub(#wanted + 2)}
  end
  return {4, 'gone'}
end
