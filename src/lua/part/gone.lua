-- SPDX-License-Identifier: MIT
-- is a holder gone, so that its lock may be handed on? KEYS 4 reign  5 absent marks; left: ms left
-- of the lock; seen: for how long the caller has seen each absence, by its own clock, ms;
-- absent(id, ms): this one is, and may be found gone in so many ms.
-- Absence counts only within one reign of the server, after the holder was seen present in it or
-- was granted in it; it must last for the grace that the holder itself chose, by the mark's time
-- and by the looker's own clock, which starts anew with every new mark.
local server, repl = redis.pcall('INFO', 'server'), redis.pcall('INFO', 'replication')
local reign = not server.err and not repl.err
  and server:match('run_id:(%w+)') .. '.' .. repl:match('master_replid:(%w+)')
local name, floor = string.match(redis.call('GET', KEYS[4]) or '', '^(%S+) (%d+) ?%d*$')
-- A slot of a cluster may come back to a server: that is another reign of the same name.
local here = reign and reign .. ':' .. (name == reign and floor or '')
local function mark(of, text, ms)
  if redis.call('TYPE', KEYS[5]).ok ~= 'hash' then redis.call('DEL', KEYS[5]) end
  redis.call('HSET', KEYS[5], of, text .. ' ' .. here)
  redis.call('PEXPIRE', KEYS[5], math.max(redis.call('PTTL', KEYS[5]), ms))
end
-- of: what its mark is about
local function gone(token, fence, grace, of)
  if grace == 0 or not reign then return false end
  local found = redis.pcall('HGET', KEYS[5], of)
  local state, first, at = string.match(type(found) == 'string' and found or '',
    '^(%a+) (%d+) (%S+)$')
  if at ~= here then state = nil end
  local granted_here = name == reign and tonumber(fence) > tonumber(floor)
  if alive(token) ~= false then
    if not granted_here then
      mark(of, 'present 0', left)
    elseif state then
      redis.call('HDEL', KEYS[5], of)
    end
    return false
  end
  if not state and not granted_here then return false end
  if state ~= 'absent' then first = now() end
  local absence = string.format('%.0f ', first) .. of
  local ms = math.min(now() - first, seen[absence] or 0)
  if ms >= grace then return true end
  mark(of, string.format('absent %.0f', first), math.max(grace, 1000) * 2)
  absent(absence, grace - ms + 1)
  return false
end
