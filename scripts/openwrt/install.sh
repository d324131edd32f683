#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs bquic from its feed on an OpenWrt router, with opkg or apk:
#   sh install.sh [--yes] [URL]      URL: the feed's, with this script in it
#   sh install.sh --undo [--yes]     removes everything again, including the configuration
# It prints what it will do, and asks, before it changes anything.
set -eu

URL='@URL@'
ARCHES='@ARCHES@'
FINGERPRINT='@FINGERPRINT@'
OPKG_KEY='@OPKG_KEY@'
APK_KEY='@APK_KEY@'

FLASH_KB=5000 # bquic-gateway, and the kernel modules that it needs, on a file system that compresses
MEMORY_MB=40  # a router with 64 has 48 to 60 of them for Linux, one with 32 fewer than 30
FEEDS=/etc/opkg/customfeeds.conf
LIST=/etc/apk/repositories.d/bquic.list
KEEP=/lib/upgrade/keep.d/bquic-feed
LANGUAGES='ca de es'
PROGRAM='/usr/bin/bquic /usr/bin/.apk.*' # the latter while apk unpacks it
# What an installation leaves that ends in between, for lack of room or power: neither opkg nor apk knows of it.
LEFT="$PROGRAM /usr/sbin/wifirrd /etc/*.d/*bquic-gateway /etc/*.d/*wifirr-sched /etc/hotplug.d/*/*bquic-gateway /etc/hotplug.d/*/*wifirr-sched
	/etc/capabilities/bquic-*.json /etc/capabilities/wifirr-sched.json /etc/uci-defaults/90-bquic-gateway /etc/uci-defaults/90-wifirr-sched
	/etc/uci-defaults/luci-i18n-bquic-* /lib/upgrade/keep.d/bquic-gateway /usr/libexec/rpcd/bquic /usr/libexec/rpcd/wifirr
	/usr/share/luci/menu.d/luci-app-bquic.json /usr/share/rpcd/acl.d/luci-app-bquic.json /usr/lib/lua/luci/i18n/bquic.*.lmo
	/www/luci-static/resources/bquic /www/luci-static/resources/view/bquic
	/usr/lib/opkg/info/bquic-gateway.* /usr/lib/opkg/info/wifirr-sched.* /usr/lib/opkg/info/luci-*-bquic*
	/lib/apk/packages/bquic-gateway.* /lib/apk/packages/wifirr-sched.* /lib/apk/packages/luci-*-bquic*"

say() { printf '%s\n' "$@"; } # each argument on a line
fail() {
	say "install.sh: $*" >&2
	exit 1
}

usage() {
	sed -n '3,6s/^# \{0,1\}//p' "$0" 2>/dev/null
	exit "$1"
}

ask() {
	[ -z "$yes" ] || return 0
	printf '%s [y/N] ' "$1"
	answer=''
	if [ -t 0 ]; then
		read -r answer || true
	elif ! { read -r answer </dev/tty; } 2>/dev/null; then
		fail 'there is no terminal to ask at (--yes: do not ask)'
	fi
	case $answer in y | Y | yes) ;; *) fail 'nothing was changed' ;; esac
}

detect() {
	if command -v apk >/dev/null; then
		manager=apk remove='apk del'
	elif command -v opkg >/dev/null; then
		manager=opkg remove='opkg remove'
	else
		fail 'neither opkg nor apk here: is this OpenWrt?'
	fi
	[ "$(id -u)" = 0 ] || fail 'must be root'
	exec 9</etc/config # a lock that leaves no file
	flock -n 9 || fail 'another install.sh runs: wait for its end'
}

# replace FILE: writes what it reads to a file that is another one, or leaves the file as it was, for lack of room.
# Flash may take down the new name before the content: without sync, a file is empty after a loss of power in between.
replace() {
	new=$(cat)
	rm -f "$1.new" # an interrupted one has left it
	[ "$new" != "$(cat "$1" 2>/dev/null)" ] || return 0
	[ -z "$new" ] || new="$new
"
	if ! { { [ ! -e "$1" ] || cp -p "$1" "$1.new"; } && printf %s "$new" | cat >"$1.new" && sync && mv "$1.new" "$1"; }; then
		rm -f "$1.new"
		fail "cannot write $1 (the error is above). It is unchanged. Make room, and run this script again."
	fi
}

# drop LINES FILE...: deletes lines. busybox's sed -i empties a file if there is no room for another one.
drop() {
	lines=$1
	shift
	for file in "$@"; do
		[ ! -f "$file" ] || sed "/$lines/d" "$file" | replace "$file"
	done
}

has() { # has PACKAGE
	case $manager in
	opkg) # it fails while another opkg runs, such as LuCI's: that says nothing of the package
		installed=$(opkg list-installed) || fail 'cannot ask opkg for its packages (the error is above). Run this script again.'
		say "$installed" | grep -q "^$1 "
		;;
	apk) apk info -e "$1" >/dev/null ;;
	esac
}

# wanted PACKAGE: whether the manager has it, or tries to get it each time that it installs anything
wanted() {
	has "$1" || { [ $manager = apk ] && grep -qsE "^$1([<>=~@]|\$)" /etc/apk/world; }
}

# newer PACKAGE: whether the feed has a newer one than is installed
newer() {
	case $manager in
	opkg) opkg list-upgradable | grep -q "^$1 " ;;
	apk) apk version -l '<' "$1" | grep -q "^$1-" ;;
	esac
}

# Once the script of any package has failed, whatever apk does fails. So what counts is whether
# the packages are there (arrived), or not (gone).
arrived() {
	for package in $packages; do
		{ has "$package" && ! newer "$package"; } || return 1
	done
}
gone() {
	for package in $packages; do
		! wanted "$package" || return 1
	done
}

# unpacked: whether an installation that ended in between has left the program
unpacked() {
	for file in $PROGRAM; do
		[ ! -e "$file" ] || return 0
	done
	return 1
}

# choose: sets packages to those that fit
choose() {
	# shellcheck source=/dev/null
	. /etc/openwrt_release
	arch=${DISTRIB_ARCH:-}
	case " $ARCHES " in *" $arch "*) ;; *) fail "the feed has nothing for \"$arch\" (it has: $ARCHES)" ;; esac
	flash=/
	[ ! -d /overlay ] || flash=/overlay
	free=$(df -kP $flash | awk 'END { print $4 + 0 }')
	case $(awk -v at=$flash '$2 == at { fs = $3 } END { print fs }' /proc/mounts) in
	jffs2 | ubifs) ;;
	*) FLASH_KB=12000 ;;
	esac
	memory=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)
	say "This router: OpenWrt ${DISTRIB_RELEASE:-}, $arch, $manager; $free KB of flash free, $memory MB of memory."

	packages='' tight=''
	[ "$free" -ge $FLASH_KB ] || tight=1
	if has bquic-gateway || unpacked || { [ -z "$tight" ] && [ "$memory" -ge $MEMORY_MB ]; }; then
		packages=bquic-gateway
	else
		say "bquic-gateway (gateway and relay) does not fit: it needs $FLASH_KB KB of flash and a router with 64 MB of memory."
	fi
	for radio in /sys/class/ieee80211/*; do
		[ -e "$radio" ] || has wifirr-sched || continue
		packages="$packages wifirr-sched"
		break
	done
	packages=${packages# }
	[ -n "$packages" ] || fail 'and no radio for wifirr-sched: nothing to install'
	[ -d /usr/share/luci ] || return 0
	packages="$packages luci-app-bquic"
	for language in $LANGUAGES; do
		uci -q get "luci.languages.$language" >/dev/null && packages="$packages luci-i18n-bquic-$language"
	done
	return 0
}

# take_back: puts the configurations back of which an upgrade that ended in between has left copies. opkg unpacks the new default
# in their place; the next upgrade would take that for the operator's, and write it over the copy. A configuration whose time is
# not that of the package's other files is not the package's.
take_back() {
	for package in bquic-gateway:bquic wifirr-sched:wifirr; do
		file=/etc/config/${package#*:}
		other=/etc/capabilities/${package%:*}.json
		[ -s "$file-opkg.backup" ] || continue
		# shellcheck disable=SC3013 # ash has -nt and -ot
		[ "$file" -nt "$other" ] || [ "$file" -ot "$other" ] || mv "$file-opkg.backup" "$file"
	done
}

# drop_keys KEPT: removes the feed's keys for opkg, also earlier ones, but KEPT
drop_keys() {
	for key in /etc/opkg/keys/*; do
		[ "${key##*/}" = "$1" ] || ! grep -qs '^untrusted comment: .* of a bquic feed$' "$key" || rm -f "$key"
	done
}

add_feed() {
	kept=/etc/bquic/ # with the gateway's key: bquic-gateway's own list goes with the package
	case $manager in
	opkg)
		mkdir -p /etc/opkg/keys
		say "$OPKG_KEY" | replace "/etc/opkg/keys/$FINGERPRINT"
		{
			awk '!/^src\/gz bquic /' $FEEDS 2>/dev/null || true # unlike sed's, its last line has an end
			say "src/gz bquic $URL/$arch"
		} | replace $FEEDS
		drop_keys "$FINGERPRINT"
		;;
	apk)
		mkdir -p /etc/apk/keys /etc/apk/repositories.d
		say "$APK_KEY" | replace /etc/apk/keys/bquic.pem
		say "$URL/$arch/packages.adb" | replace $LIST
		kept="$kept /etc/apk/keys/bquic.pem $LIST" # opkg's are kept anyway
		;;
	esac
	mkdir -p "${KEEP%/*}"
	# shellcheck disable=SC2086 # words
	say $kept $KEEP | replace $KEEP
}

# forget: removes what opkg has read of the feed, which is the file $list
forget() {
	list=$(awk '$1 == "lists_dir" { dir = $3 } END { print dir ? dir : "/usr/lib/opkg/lists" }' /etc/opkg.conf)/bquic
	rm -f "$list" "$list.sig"
}

# update: reads what the feeds have. Others may be out of order. Without ours, opkg and apk would call what is installed up to
# date, or install what they remember.
update() {
	case $manager in
	opkg)
		forget
		opkg update || true
		zcat "$list" 2>/dev/null | grep -q "^Package: " # without check_signature, it may also be a portal's page
		;;
	apk)
		apk update || true
		apk update --repositories-file $LIST >/dev/null 2>&1
		;;
	esac || fail "cannot read the feed $URL/$arch (the error is above): nothing was installed." \
		"If the feed's key has changed, fetch its new install.sh. To remove everything again: sh install.sh --undo"
}

install() {
	case $URL in
	http://* | https://*) ;;
	*) fail 'say where the feed is: sh install.sh http://...' ;;
	esac
	case $URL in *[!][A-Za-z0-9:/._~%@-]*) fail "no address of a feed: $URL" ;; esac
	choose
	case $manager in
	opkg) where="$FEEDS, its key to /etc/opkg/keys/$FINGERPRINT" ;;
	apk) where="$LIST, its key to /etc/apk/keys/bquic.pem" ;;
	esac
	say "This will add the feed $URL/$arch to $where, have sysupgrade keep them and /etc/bquic ($KEEP), and install: $packages." 'Nothing starts before you switch it on.'
	ask 'Go on?'
	take_back
	add_feed
	update
	if has bquic-gateway && [ -n "$tight" ] && newer bquic-gateway; then
		fail "the new bquic-gateway needs $FLASH_KB KB beside the old one: nothing was installed. Remove the old one ($remove bquic-gateway)," \
			'wait 30 s for its last connections, and run this script again; a configuration that you have changed stays.'
	fi
	# shellcheck disable=SC2086 # a list of patterns
	has bquic-gateway || rm -f $PROGRAM # the rest of LEFT needs no room, and is replaced
	# shellcheck disable=SC2086 # a list of words
	case $manager in
	opkg) opkg install $packages ;;
	apk) # add --upgrade would also upgrade what they need, such as libc and LuCI
		apk add $packages
		apk fix --upgrade $packages || arrived
		;;
	esac || fail "$manager failed (the error is above). To remove everything again: sh install.sh --undo"
	for package in $packages; do
		has "$package" || fail "$manager did not install $package. To remove everything again: sh install.sh --undo"
		case $package in
		bquic-gateway) program=/usr/bin/bquic ;;
		wifirr-sched) program=/usr/sbin/wifirrd ;;
		*) continue ;;
		esac
		# opkg calls what it wrote half of, for lack of room, installed; a loss of power can take the end of a new file later
		$program --version >/dev/null 2>&1 || fail "$program does not run: $manager has installed $package, but not all of it is there." \
			"Remove the package ($remove $package), and run this script again; a configuration that you have changed stays."
	done
	say '' 'Installed. What is next:'
	case " $packages " in *' luci-app-bquic '*) say '  in LuCI (log in anew): Services > Mesh acceleration' ;; esac
	case " $packages " in *' bquic-gateway '*) say '  a gateway:   uci set bquic.gateway.enabled=1; uci set bquic.gateway.token=A_LONG_SECRET; uci commit bquic; reload_config' \
		'               bquic status     (shows the pin, which its nodes need)' \
		'  a node:      uci set bquic.relay.enabled=1; uci set bquic.relay.gateway=HOST:8443; uci set bquic.relay.token=THE_SAME' \
		'               uci set bquic.relay.pin=PIN; uci commit bquic; reload_config' ;;
	esac
	case " $packages " in *' wifirr-sched '*) say '  a scheduler: uci set wifirr.wlan0.device=phy0-ap0; uci set wifirr.wlan0.enabled=1; uci commit wifirr; reload_config' ;; esac
	case " $packages " in *' bquic-gateway '*) say '  is it on?    bquic status' ;; esac
	case " $packages " in *' wifirr-sched '*) say '  is it on?    wifirrd --device phy0-ap0 status' ;; esac
	say '  to upgrade, run this script again; to remove everything again: sh install.sh --undo'
}

undo() {
	packages=''
	for language in $LANGUAGES; do # before luci-app-bquic, which they depend on
		wanted "luci-i18n-bquic-$language" && packages="$packages luci-i18n-bquic-$language"
	done
	for package in luci-app-bquic wifirr-sched bquic-gateway; do
		wanted $package && packages="$packages $package"
	done
	say "This will remove:${packages:- no package}; the feed and its key;" \
		'the configurations /etc/config/bquic and /etc/config/wifirr, /etc/bquic with the key of the gateway, and the users bquic and wifirr.'
	ask 'Go on?'
	rm -rf /etc/hotplug.d/ntp/95-bquic-gateway /etc/bquic-feed # which would install them again (docs/fleet.md)
	# shellcheck disable=SC2086 # a list of words
	[ -z "$packages" ] || case $manager in
	opkg) opkg remove --autoremove $packages ;;
	apk) apk del $packages || gone ;;
	esac || fail "$manager failed (the error is above)"
	for service in /etc/init.d/bquic-gateway /etc/init.d/wifirr-sched; do # of an installation that ended in between
		[ ! -x $service ] || $service stop || true
	done
	# shellcheck disable=SC2086 # a list of patterns
	rm -rf $LEFT
	find /etc /lib /usr /www -name '.apk.*' -exec rm -f {} ';' 2>/dev/null || true # there may be no /www
	rm -rf /etc/bquic /etc/config/bquic /etc/config/bquic-opkg* /etc/config/wifirr /etc/config/wifirr-opkg* \
		/etc/config/bquic.apk-new /etc/config/wifirr.apk-new /var/etc/bquic /var/etc/wifirr \
		/var/run/bquic /var/run/wifirr
	drop_keys ''
	[ $manager != opkg ] || forget
	for file in $KEEP "/etc/opkg/keys/$FINGERPRINT" /etc/apk/keys/bquic.pem $LIST; do
		rm -f "$file" "$file.new"
	done
	drop '^src\/gz bquic ' $FEEDS
	[ -s $FEEDS ] || rm -f $FEEDS
	drop '^\(bquic\|wifirr\):' /etc/passwd /etc/group /etc/shadow
	drop '^\/etc\/\(bquic-feed\/\|hotplug.d\/ntp\/95-bquic-gateway\)$' /etc/sysupgrade.conf
	say 'All is as it was before.'
}

yes=''
action=install
for argument in "$@"; do
	case $argument in
	--yes) yes=1 ;;
	--undo) action=undo ;;
	-h | --help) usage 0 ;;
	-*) usage 1 >&2 ;;
	*) URL=${argument%/} ;;
	esac
done
detect
$action
