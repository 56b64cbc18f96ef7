#!/bin/sh
# Installs the program `highwater` @VERSION@: downloads the archive of the release for this computer, verifies its checksum,
# and puts the program into a folder.
#
#   HIGHWATER_INSTALL_DIR    the folder (default: ~/.local/bin)
#   HIGHWATER_DOWNLOAD_URL   where the archives are (default: the release)
set -eu

fail() {
  echo "error: $*" >&2
  exit 1
}

# The archive for this computer, and its checksum.
choose() {
  system=
  case "$(uname -s) $(uname -m)" in
    "Linux x86_64" | "Linux amd64") arch=x86_64 system=linux ;;
    "Linux aarch64" | "Linux arm64") arch=aarch64 system=linux ;;
    "Darwin arm64") target=aarch64-apple-darwin ;;
    "Darwin x86_64") target=x86_64-apple-darwin ;;
    *) fail "there is no archive for $(uname -s) on $(uname -m): build it from source" ;;
  esac
  if [ "$system" = linux ]; then
    # The GNU C library from 2.28, else the program that needs no library.
    libc=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d ' ' -f 2) || libc=
    minor=${libc#2.}
    case $minor in
      '' | *[!0-9]*) target=$arch-unknown-linux-musl ;;
      *) if [ "$minor" -ge 28 ]; then target=$arch-unknown-linux-gnu; else target=$arch-unknown-linux-musl; fi ;;
    esac
  fi
  case $target in
    x86_64-unknown-linux-gnu) sum='@SHA256 highwater-x86_64-unknown-linux-gnu.tar.gz@' ;;
    aarch64-unknown-linux-gnu) sum='@SHA256 highwater-aarch64-unknown-linux-gnu.tar.gz@' ;;
    x86_64-unknown-linux-musl) sum='@SHA256 highwater-x86_64-unknown-linux-musl.tar.gz@' ;;
    aarch64-unknown-linux-musl) sum='@SHA256 highwater-aarch64-unknown-linux-musl.tar.gz@' ;;
    aarch64-apple-darwin) sum='@SHA256 highwater-aarch64-apple-darwin.tar.gz@' ;;
    x86_64-apple-darwin) sum='@SHA256 highwater-x86_64-apple-darwin.tar.gz@' ;;
  esac
}

download() {
  if command -v curl >/dev/null; then
    curl --fail --silent --show-error --location --output "$2" "$1"
  elif command -v wget >/dev/null; then
    wget --quiet --output-document="$2" "$1"
  else
    fail "neither curl nor wget is installed"
  fi || fail "cannot download $1"
}

checksum() {
  if command -v sha256sum >/dev/null; then
    sha256sum "$1"
  elif command -v shasum >/dev/null; then
    shasum -a 256 "$1"
  else
    fail "neither sha256sum nor shasum is installed"
  fi | cut -d ' ' -f 1
}

main() {
  choose
  url=${HIGHWATER_DOWNLOAD_URL:-https://github.com/OWNER/highwater/releases/download/v@VERSION@}
  folder=${HIGHWATER_INSTALL_DIR:-$HOME/.local/bin}
  temporary=$(mktemp -d)
  trap 'rm -rf "$temporary"' EXIT
  archive=highwater-$target.tar.gz
  download "$url/$archive" "$temporary/$archive"
  found=$(checksum "$temporary/$archive")
  [ "$found" = "$sum" ] || fail "$archive has the checksum $found instead of $sum: it is damaged or was replaced"
  tar -xzf "$temporary/$archive" -C "$temporary" ./highwater
  mkdir -p "$folder"
  # In two steps, so that a program that is running is replaced as a whole.
  cp "$temporary/highwater" "$folder/.highwater.new"
  mv "$folder/.highwater.new" "$folder/highwater"
  echo "installed $folder/highwater"
  case ":$PATH:" in
    *":$folder:"*) ;;
    *) echo "$folder is not on PATH: add it, as by  export PATH=\"$folder:\$PATH\"" ;;
  esac
}

# Called here, so that a script that was cut off while it was downloaded does nothing.
main
