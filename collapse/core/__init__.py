"""What every room needs: progress, paths, files, escaping, and settings of torch and of the process."""
