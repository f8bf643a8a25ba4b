"""What makes the site of this documentation: pages from the code, and links that hold on the site too."""
