# The formula of a Homebrew tap. release.py fills in version, address and checksums.
class Highwater < Formula
  desc "Finds out where GPU memory goes"
  homepage "https://github.com/OWNER/highwater"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

  on_macos do
    on_arm do
      url "https://github.com/OWNER/highwater/releases/download/v@VERSION@/highwater-aarch64-apple-darwin.tar.gz"
      sha256 "@SHA256 highwater-aarch64-apple-darwin.tar.gz@"
    end
    on_intel do
      url "https://github.com/OWNER/highwater/releases/download/v@VERSION@/highwater-x86_64-apple-darwin.tar.gz"
      sha256 "@SHA256 highwater-x86_64-apple-darwin.tar.gz@"
    end
  end

  on_linux do
    on_arm do
      url "https://github.com/OWNER/highwater/releases/download/v@VERSION@/highwater-aarch64-unknown-linux-gnu.tar.gz"
      sha256 "@SHA256 highwater-aarch64-unknown-linux-gnu.tar.gz@"
    end
    on_intel do
      url "https://github.com/OWNER/highwater/releases/download/v@VERSION@/highwater-x86_64-unknown-linux-gnu.tar.gz"
      sha256 "@SHA256 highwater-x86_64-unknown-linux-gnu.tar.gz@"
    end
  end

  def install
    bin.install "highwater"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/highwater.bash" => "highwater"
    zsh_completion.install "completions/_highwater"
    fish_completion.install "completions/highwater.fish"
  end

  test do
    system bin/"highwater", "record", "mlp", "--steps", "2", "--out", "mlp.snap"
    assert_match "highwater #{version}", shell_output("#{bin}/highwater --version")
    assert_match "peak", shell_output("#{bin}/highwater peak mlp.snap")
  end
end
