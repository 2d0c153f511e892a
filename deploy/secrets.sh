#!/bin/sh
# secrets.sh makes a random password for the service and one for backups, and writes redis.acl,
# userdb.env and backup.env beside compose.yaml. It does not overwrite existing files.
set -eu
cd "$(dirname "$0")"
for file in redis.acl userdb.env backup.env; do
	if [ -e "$file" ]; then
		echo "secrets.sh: $file already exists; nothing was written" >&2
		exit 1
	fi
done
random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }
hash() { printf %s "$1" | sha256sum | cut -d ' ' -f 1; }
password=$(random)
backup=$(random)
password_hash=$(hash "$password")
backup_hash=$(hash "$backup")
for text in "$password" "$backup" "$password_hash" "$backup_hash"; do
	if [ ${#text} -ne 64 ]; then
		echo 'secrets.sh: no random bytes, or no sha256sum; nothing was written' >&2
		exit 1
	fi
done
# Nobody can log in as the user default, but the server loads its append-only file with that user's
# rights. Without these rights it would drop, at every start, what scripts have written.
# In its container, the server reads redis.acl and redis.conf as another user, so other users must
# be able to read the files. That is safe, because the hash of 256 random bits reveals nothing.
chmod 644 redis.conf
cat >redis.acl <<'ACL'
user default off ~* &* +@all
ACL
printf 'user userdb on #%s %s\n' "$password_hash" '~* resetchannels -@all +cluster|slots +eval +evalsha +exists +expire +get +hdel +hexists +hget +hgetall +hincrby +hkeys +hmget +hset +hsetnx +info +llen +lrange +memory|usage +mset +persist +pexpire +ping +pttl +rename +sadd +scan +scard +set +sismember +smembers +smismember +srem +sscan +sunionstore +time +type +unlink +xadd +xlen +xrange +xrevrange +xtrim +zadd +zcard +zlexcount +zrange +zrangebylex +zrem +zrevrangebylex +copy +dbsize +dump +exec +getrange +hlen +hscan +mget +multi +restore +strlen +zscore' >>redis.acl
printf 'user backup on #%s resetchannels -@all +replconf +sync\n' "$backup_hash" >>redis.acl
chmod 644 redis.acl
umask 077
printf 'USERDB_STORE=redis://userdb:%s@redis:6379/0\n' "$password" >userdb.env
printf 'REDISCLI_AUTH=%s\n' "$backup" >backup.env
