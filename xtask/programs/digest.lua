-- redis: one number for the values of all keys, so that whoever runs this sees whether one of them is another.
local sum = ''
for key = 0, 299999 do
    sum = redis.sha1hex(sum .. redis.call('GET', 'key:' .. key))
end
return sum
