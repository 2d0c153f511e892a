#!/bin/sh
# secrets.sh writes redis.acl and userdb.env, with a random password, beside compose.yaml. It does
# not overwrite existing files.
set -eu
cd "$(dirname "$0")"
if [ -e redis.acl ] || [ -e userdb.env ]; then
	echo 'redis.acl or userdb.env already exists' >&2
	exit 1
fi
password=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
hash=$(printf %s "$password" | sha256sum | cut -d ' ' -f 1)
# Nobody can log in as the user default, but the server loads its append-only file with that user's
# rights. Without these rights it would drop, at every start, what scripts have written.
# In its container, the server reads redis.acl as another user, so other users must be able to read
# the file. That is safe, because the hash of 256 random bits reveals nothing.
cat >redis.acl <<'ACL'
user default off ~* &* +@all
ACL
printf 'user userdb on #%s %s\n' "$hash" '~* resetchannels -@all +cluster|slots +eval +evalsha +exists +expire +get +hdel +hexists +hget +hgetall +hincrby +hkeys +hmget +hset +hsetnx +info +llen +lrange +memory|usage +mset +persist +pexpire +ping +pttl +rename +sadd +scan +scard +set +sismember +smembers +smismember +srem +sscan +sunionstore +time +type +unlink +xadd +xlen +xrange +xrevrange +xtrim +zadd +zcard +zlexcount +zrange +zrangebylex +zrem +zrevrangebylex +copy +dbsize +dump +exec +getrange +hlen +hscan +mget +multi +restore +strlen +zscore' >>redis.acl
umask 077
printf 'USERDB_STORE=redis://userdb:%s@redis:6379/0\n' "$password" >userdb.env
