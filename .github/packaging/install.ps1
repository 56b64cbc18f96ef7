# Installs the program highwater @VERSION@: downloads the archive of the release, verifies its checksum, and puts the program
# into a folder.
#
#   HIGHWATER_INSTALL_DIR    the folder (default: %LOCALAPPDATA%\highwater)
#   HIGHWATER_DOWNLOAD_URL   where the archives are (default: the release)

function Install-Highwater {
    # In the function, so that a shell that runs this script with `iex` keeps its own preferences.
    $ErrorActionPreference = 'Stop'
    $ProgressPreference = 'SilentlyContinue'
    $target = 'x86_64-pc-windows-msvc'
    $sum = '@SHA256 highwater-x86_64-pc-windows-msvc.tar.gz@'
    $archive = "highwater-$target.tar.gz"
    $url = $env:HIGHWATER_DOWNLOAD_URL
    if (-not $url) { $url = 'https://github.com/OWNER/highwater/releases/download/v@VERSION@' }
    $folder = $env:HIGHWATER_INSTALL_DIR
    if (-not $folder) { $folder = Join-Path $env:LOCALAPPDATA 'highwater' }

    $temporary = Join-Path ([IO.Path]::GetTempPath()) ([IO.Path]::GetRandomFileName())
    New-Item -ItemType Directory -Path $temporary | Out-Null
    try {
        $file = Join-Path $temporary $archive
        Invoke-WebRequest -UseBasicParsing -Uri "$url/$archive" -OutFile $file
        $found = (Get-FileHash -Algorithm SHA256 -LiteralPath $file).Hash
        if ($found -ne $sum) {
            throw "$archive has the checksum $found instead of ${sum}: it is damaged or was replaced"
        }
        # Windows has tar from version 10.
        tar -xzf $file -C $temporary ./highwater.exe
        if ($LASTEXITCODE -ne 0) { throw "cannot unpack $archive" }
        New-Item -ItemType Directory -Force -Path $folder | Out-Null
        Move-Item -Force -LiteralPath (Join-Path $temporary 'highwater.exe') -Destination $folder
    } finally {
        Remove-Item -Recurse -Force -LiteralPath $temporary
    }
    Write-Output "installed $(Join-Path $folder 'highwater.exe')"
    if (($env:PATH -split ';') -notcontains $folder) {
        Write-Output "$folder is not on PATH: add it in the settings of the environment"
    }
}

# Called here, so that a script that was cut off while it was downloaded does nothing.
Install-Highwater
