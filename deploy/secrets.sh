#!/bin/sh
# secrets.sh makes a random password for the service and one for backups, and writes userdb.env,
# backup.env and, last, redis.acl beside compose.yaml. It overwrites no file: if redis.acl exists,
# it writes nothing, and if only that file is missing, the passwords stay as they are. So a run that
# was interrupted can be repeated.
set -eu
cd "$(dirname "$0")"
if [ -e redis.acl ]; then
	echo 'secrets.sh: redis.acl already exists; nothing was written' >&2
	exit 1
fi
umask 077
work=$(mktemp -d ./secrets.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
# password prints the password in an existing file, or else a random one.
password() {
	if [ -e "$1" ]; then
		echo "secrets.sh: $1 keeps its password" >&2
		sed -n -e 's|^USERDB_STORE=redis://userdb:\([0-9a-f]*\)@.*|\1|p' -e 's|^REDISCLI_AUTH=\([0-9a-f]*\)$|\1|p' "$1"
	else
		od -An -N32 -tx1 /dev/urandom | tr -d ' \n'
	fi
}
hash() { printf %s "$1" | sha256sum | cut -d ' ' -f 1; }
password=$(password userdb.env)
backup=$(password backup.env)
password_hash=$(hash "$password")
backup_hash=$(hash "$backup")
if [ ${#password} -ne 64 ] || [ ${#backup} -ne 64 ]; then
	echo 'secrets.sh: no random bytes, or userdb.env or backup.env has no password of secrets.sh; nothing was written' >&2
	exit 1
fi
if [ ${#password_hash} -ne 64 ] || [ ${#backup_hash} -ne 64 ]; then
	echo 'secrets.sh: no sha256sum; nothing was written' >&2
	exit 1
fi
printf 'USERDB_STORE=redis://userdb:%s@redis:6379/0\n' "$password" >"$work/userdb.env"
printf 'REDISCLI_AUTH=%s\n' "$backup" >"$work/backup.env"
# Nobody can log in as the user default, but the server loads its append-only file with that user's
# rights. Without these rights it would drop, at every start, what scripts have written.
cat >"$work/redis.acl" <<'ACL'
user default off ~* &* +@all
ACL
printf 'user userdb on #%s %s\n' "$password_hash" '~* resetchannels -@all +cluster|nodes +cluster|slots +eval +evalsha +exists +expire +get +hdel +hexists +hget +hgetall +hincrby +hkeys +hmget +hset +hsetnx +info +llen +lrange +memory|usage +mset +persist +pexpire +ping +pttl +rename +sadd +scan +scard +set +sismember +smembers +smismember +srem +sscan +sunionstore +time +type +unlink +xadd +xlen +xrange +xrevrange +xtrim +zadd +zcard +zlexcount +zrange +zrangebylex +zrem +zrevrangebylex +copy +dbsize +dump +exec +getrange +hlen +hscan +mget +multi +restore +strlen +zscore' >>"$work/redis.acl"
printf 'user backup on #%s resetchannels -@all +replconf +sync\n' "$backup_hash" >>"$work/redis.acl"
# In its container, the server reads redis.acl and redis.conf as another user, so other users must
# be able to read the files. That is safe, because the hash of 256 random bits reveals nothing.
chmod 644 "$work/redis.acl" redis.conf
sync # so that a file with its final name is whole, even after a crash of the machine
# Unlike mv, ln never replaces a file, but some file systems have no links.
for file in userdb.env backup.env redis.acl; do
	[ -e "$file" ] || ln "$work/$file" "$file" 2>/dev/null || mv "$work/$file" "$file"
done
