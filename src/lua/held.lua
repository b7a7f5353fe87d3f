-- SPDX-License-Identifier: MIT
-- held: do these locks still hold what their holders wrote? Changes nothing.
-- KEYS locks; then of those that are shared: lock, own (for the name of its holders' key)
-- ARGV for each lock its value; then for each that is shared the token
-- Returns the places in ARGV of those that do not. What has become of them is for keep to say: this
-- is asked often, of many, and has to cost little.
local call, odd, shared = redis.pcall, {}, #KEYS - #ARGV
local function denied(found)
  if type(found) == 'table' and not string.find(found.err, 'WRONGTYPE') then error(found) end
  return found
end
for i = 1, #ARGV - shared do
  local want = ARGV[i]
  local found = call('GETRANGE', KEYS[i], 0, #want)
  if found ~= want then
    denied(found)
    odd[#odd + 1] = i
  end
end
for i = #ARGV - shared + 1, #ARGV do
  local at = 2 * i - (#ARGV - shared)
  local kind = denied(call('GETRANGE', KEYS[at - 1], 0, 6))
  local holders = string.sub(KEYS[at], 1, -4) .. 'h'
  if kind ~= 'shared.' or type(denied(call('ZSCORE', holders, ARGV[i]))) ~= 'string' then
    odd[#odd + 1] = i
  end
end
return odd
