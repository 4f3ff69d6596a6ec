#!/bin/bash
# Makes the Debian package and looks into it: package.sh BUILD. With GANTRY_LONG=1, as root and with a mirror of Debian's, it is
# installed on a bare Debian 12 (debootstrap) by apt, and used there.
set -euo pipefail
build=$1
scratch=$(mktemp -d)
trap '[ ! -d "$scratch/root/proc" ] || umount -q "$scratch/root/proc" || true; rm -rf "$scratch"' EXIT
cpack -G DEB --config "$build/CPackConfig.cmake" -B "$scratch/packages" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
package=$(ls "$scratch"/packages/gantry_*.deb)
dpkg-deb -I "$package"

depends=$(dpkg-deb -f "$package" Depends)
for library in libc6 libstdc++6 libyaml-cpp libfmt libicu libonig libsentencepiece libxxhash libjpeg libpng libzstd zlib1g; do
  case $depends in *$library*) ;; *) echo "no $library in: $depends"; exit 1 ;; esac
done
case $depends in *torch*) echo "LibTorch is no package: $depends"; exit 1 ;; esac

dpkg-deb -x "$package" "$scratch/files"
for file in bin/gantry libexec/gantry/gantry-engine include/gantry/booster/gantry.h share/man/man1/gantry.1 \
  share/bash-completion/completions/gantry share/zsh/vendor-completions/_gantry share/fish/vendor_completions.d/gantry.fish; do
  [ -s "$scratch/files/usr/$file" ] || { echo "no $file in the package"; exit 1; }
done
# What it was built with is on no other machine.
for file in "$scratch"/files/usr/lib*/libgantry*.so.*.* "$scratch/files/usr/libexec/gantry/gantry-engine"; do
  path=$(readelf -d "$file" | sed -n 's/.*R.*PATH.*\[\(.*\)\]/\1/p')
  case $path in *site-packages* | *"$build"*) echo "$file looks for libraries in $path"; exit 1 ;; esac
done
"$scratch/files/usr/bin/gantry" --help >/dev/null

[ -n "${GANTRY_LONG:-}" ] || exit 0
root=$scratch/root
debootstrap --variant=minbase bookworm "$root" ${GANTRY_MIRROR:+"$GANTRY_MIRROR"} >"$scratch/log" 2>&1 || { tail -20 "$scratch/log"; exit 1; }
cp "$package" "$root/tmp/gantry.deb"
mount -t proc proc "$root/proc"
in_root() { chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
in_root apt-get update -qq
in_root apt-get install -y -qq --no-install-recommends /tmp/gantry.deb >"$scratch/log" 2>&1 || { tail -20 "$scratch/log"; exit 1; }
in_root gantry --help
in_root gantry --version
in_root gantry doctor
in_root gantry schedule check zb_v -p 4 -m 8
in_root gantry init /tmp_model >/dev/null 2>&1 && { echo "a path was taken for a name"; exit 1; }
(in_root sh -c 'cd /root && gantry init my_model')
in_root sh -c 'cd /root/my_model && gantry config train.yaml' >/dev/null
# Training needs LibTorch: one line says so, and how to get it.
code=0
in_root sh -c 'cd /root/my_model && gantry train train.yaml' 2>"$scratch/error" || code=$?
cat "$scratch/error"
[ "$code" = 6 ] && [ "$(wc -l <"$scratch/error")" = 1 ] && grep -q "GANTRY_TORCH" "$scratch/error"
